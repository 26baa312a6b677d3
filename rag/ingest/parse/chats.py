"""Exports of programs for chats, as JSON: Slack, Telegram, ChatGPT and Claude.

A day or a conversation is a section, and each message a paragraph: who, when, what. Ids, reactions and what
else only the program needs are left out. A question to an assistant heads its answer.
"""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rag.corpus import Document
from rag.ingest.parse.blocks import Part, clean, date, title_line
from rag.ingest.parse.xml.feeds import composed_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_QUESTION = 300  # characters: a longer message to an assistant is a text, and heads nothing

_LINK = re.compile(r"<([^<>|\s]+)(?:\|([^<>]*))?>")
_MEDIA = ("photo", "file", "media_type", "sticker_emoji")
_JOINS = frozenset({"channel_join", "channel_leave", "group_join", "group_leave", "bot_add", "bot_remove"})


class _Message(NamedTuple):
    """A message; who asks an assistant is "User"."""

    who: str
    at: datetime | None
    text: str


class _Chat(NamedTuple):
    """A conversation, with people or with an assistant."""

    title: str
    messages: list[_Message]
    with_assistant: bool = False


def chat_document(value: object, name: str) -> Document | None:
    """The document of an export, None if a JSON value is none."""
    chats = [chat for chat in _chats(value) if chat.messages]
    if not chats:
        return None
    is_one = len(chats) == 1
    text, blocks = composed_entries(
        entry for chat in chats for entry in _entries(chat, with_title=not is_one)
    )
    title, last = (chats[0].title, chats[0].messages[-1].at) if is_one else ("", None)
    return Document(text, title or name, "application/json", blocks, date=last)


def _entries(chat: _Chat, *, with_title: bool) -> Iterator[tuple[list[Part], str]]:
    """The parts of a conversation, each with what follows in Markdown."""
    level = 1
    if with_title and chat.title:
        yield [Part("heading", f"# {title_line(chat.title)}", 1, chat.title)], ""
        level = 2
    if not chat.with_assistant:
        yield [*_days(chat.messages, level)], ""
        return
    for message in chat.messages:
        is_short = len(message.text) <= MAX_QUESTION and "\n" not in message.text
        if message.who != "User":
            yield [Part("paragraph", f"{message.who}:")], message.text
        elif is_short:
            yield [Part("heading", f"{'#' * level} {message.text}", level, message.text)], ""
        else:
            yield [Part("paragraph", f"User: {message.text}")], ""


def _days(messages: list[_Message], level: int) -> Iterator[Part]:
    """The messages of people, those of each day below its date."""
    day = ""
    for message in messages:
        if message.at and f"{message.at:%Y-%m-%d}" != day:
            day = f"{message.at:%Y-%m-%d}"
            yield Part("heading", f"{'#' * level} {day}", level, day)
        time = f" ({message.at:%H:%M})" if message.at else ""
        yield Part("paragraph", f"{message.who}{time}: {message.text}")


def _chats(value: object) -> Iterator[_Chat]:
    """The conversations of an export; none of another value."""
    if isinstance(value, dict):
        several = value.get("chats")
        listed = several.get("list") if isinstance(several, dict) else [value]
        for chat in _dicts(listed):
            if "type" in chat and any("date_unixtime" in message for message in _dicts(chat.get("messages"))):
                yield _Chat(_text(chat, "name"), [*_of_telegram(chat)])
        return
    items = _dicts(value)
    if items and all(isinstance(item.get("mapping"), dict) for item in items):
        yield from (_Chat(_text(item, "title"), [*_of_chatgpt(item)], with_assistant=True) for item in items)
    elif items and all(isinstance(item.get("chat_messages"), list) for item in items):
        yield from (_Chat(_text(item, "name"), [*_of_claude(item)], with_assistant=True) for item in items)
    elif items and all(item.get("type") == "message" and "ts" in item for item in items):
        yield _Chat("", [*_of_slack(items)])


def _of_telegram(chat: Mapping[str, Any]) -> Iterator[_Message]:
    for message in _dicts(chat.get("messages")):
        written = message.get("text", "")
        pieces = written if isinstance(written, list) else [written]
        text = "".join(piece if isinstance(piece, str) else _text(piece, "text") for piece in pieces)
        media = next((f"({key.replace('_', ' ')})" for key in _MEDIA if message.get(key)), "")
        if message.get("type") == "message" and (
            said := " ".join(filter(None, (clean(text).strip(), media)))
        ):
            yield _Message(_text(message, "from") or "somebody", date(_text(message, "date")), said)


def _of_slack(items: list[dict[str, Any]]) -> Iterator[_Message]:
    """The messages of a channel; people are called as their profiles say, if these are among the messages."""
    profiles = {
        _text(item, "user"): item["user_profile"]
        for item in items
        if isinstance(item.get("user_profile"), dict)
    }
    names = {
        user: _text(about, "real_name") or _text(about, "display_name") for user, about in profiles.items()
    }

    def plain(link: re.Match[str]) -> str:
        target, label = link[1], link[2] or ""
        if target.startswith("@"):
            return f"@{label or names.get(target[1:]) or target[1:]}"
        if target.startswith(("#", "!")):
            return f"{target[0].strip('!')}{label or target[1:]}"
        return f"{label} ({target})" if label and label not in target else target

    for item in items:
        text = html.unescape(_LINK.sub(plain, _text(item, "text")))
        files = ", ".join(filter(None, (_text(file, "name") for file in _dicts(item.get("files")))))
        said = " ".join(filter(None, (clean(text).strip(), f"(file: {files})" if files else "")))
        user = _text(item, "user")
        if said and item.get("subtype") not in _JOINS:
            who = names.get(user) or _text(item, "username") or user or "somebody"
            yield _Message(who, _moment(item.get("ts")), said)


def _of_chatgpt(conversation: Mapping[str, Any]) -> Iterator[_Message]:
    """The messages that a person sees: the branch which ends at the current one."""
    nodes = conversation["mapping"]
    at: object = conversation.get("current_node") or next(reversed(nodes), "")
    branch: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while isinstance(at, str) and isinstance(node := nodes.get(at), dict) and at not in seen:
        seen.add(at)
        message = node.get("message")
        about = message.get("metadata") if isinstance(message, dict) else None
        if isinstance(message, dict) and not (
            isinstance(about, dict) and about.get("is_visually_hidden_from_conversation")
        ):
            branch.append(message)
        at = node.get("parent")
    for message in reversed(branch):
        author, content = message.get("author"), message.get("content")
        role = _text(author, "role") if isinstance(author, dict) else ""
        parts = content.get("parts") if isinstance(content, dict) else None
        said = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
        if role in {"user", "assistant"} and (text := clean("\n\n".join(said)).strip()):
            yield _Message(role.title(), _moment(message.get("create_time")), text)


def _of_claude(conversation: Mapping[str, Any]) -> Iterator[_Message]:
    for message in _dicts(conversation["chat_messages"]):
        if text := clean(_text(message, "text")).strip():
            who = "User" if message.get("sender") == "human" else "Assistant"
            yield _Message(who, date(_text(message, "created_at")), text)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key) if isinstance(item, dict) else None
    return value if isinstance(value, str) else ""


def _moment(seconds: object) -> datetime | None:
    """A moment from seconds since 1970, which Slack writes as text."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)  # type: ignore[arg-type]  # the errors of others are caught
    except (TypeError, ValueError, OverflowError, OSError):
        return None

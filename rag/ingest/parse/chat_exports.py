"""Exports of chats as JSON: Slack, Telegram, Discord, Facebook, Instagram, ChatGPT and Claude.

A day or a conversation is a section, and each message a paragraph: who, to whom, when, what. A question to an
assistant heads its answer. Ids and reactions are omitted.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, NamedTuple

from rag.corpus import Document
from rag.ingest.parse.document_parts import Part, clean, date, heading, title_line
from rag.ingest.parse.titles_and_questions import MAX_QUESTION
from rag.ingest.parse.xml_document import composed_entries
from rag.report import shortened
from rag.text.plain_text import one_line

_LINK = re.compile(r"<([^<>|\s]+)(?:\|([^<>]*))?>")
_MEDIA = ("photo", "file", "media_type", "sticker_emoji")
_MESSENGER_MEDIA = ("photos", "videos", "audio_files", "gifs", "files", "media", "sticker")
_MAX_QUOTE = 60  # characters of a message that an answer to it quotes
_UNSHOWN = frozenset(
    {"channel_join", "channel_leave", "group_join", "group_leave", "bot_add", "bot_remove", "tombstone"}
    | {"GuildMemberJoin", "ChannelPinnedMessage"}
)
_MARKS = re.compile("\ue200(?P<kind>[a-z_]+)\ue202(?P<about>[^\ue200\ue201]*)\ue201|【[0-9:]+†[^【】]*】")
"""What ChatGPT marks in an answer: the sources of a sentence, and things that it shows as cards."""


class _Message(NamedTuple):
    """A message; the sender is "User" for questions to an assistant. `attached` is text that came with it.

    One that is `in_thread` stands below the message that it answers, whatever was written in between.
    """

    sender: str
    at: datetime | None
    text: str
    attached: str = ""
    in_thread: bool = False


class _Chat(NamedTuple):
    """A conversation, with people or with an assistant; or what was written in a `channel` on a day."""

    title: str
    messages: list[_Message]
    with_assistant: bool = False
    channel: str = ""


def channel_day(channel: str, day: str) -> str:
    """The title of what was written in a channel on a day: "general, 2024-03-12"."""
    return f"{channel}, {day}" if channel else day


def chat_document(value: object, name: str, folder: str) -> Document | None:
    """The document of a chat export."""
    chats = [chat for chat in _chats(value, folder) if chat.messages]
    if not chats:
        return None
    is_one = len(chats) == 1
    text, blocks = composed_entries(
        entry for chat in chats for entry in _entries(chat, with_title=not is_one)
    )
    if not is_one:
        return Document(text, name, "application/json", blocks)
    (chat,) = chats
    title = channel_day(chat.channel, PurePath(name).stem) if chat.channel else chat.title
    last = max((message.at for message in chat.messages if message.at), default=None)
    return Document(text, title or name, "application/json", blocks, date=last)


def _entries(chat: _Chat, *, with_title: bool) -> Iterator[tuple[list[Part], str]]:
    """The entries of a conversation: heading or first line, and the text below in Markdown."""
    level = 1
    if with_title and chat.title:
        yield [heading(title_line(chat.title), 1)], ""
        level = 2
    if not chat.with_assistant:
        yield [*_days(chat, level)], ""
        return
    for message in chat.messages:
        is_short = len(message.text) <= MAX_QUESTION and "\n" not in message.text
        if message.sender != "User":
            whole = "\n\n".join(filter(None, (message.text, message.attached)))
            yield [Part("paragraph", f"{message.sender}:")], whole
        elif is_short and message.text:
            yield [heading(message.text, level)], message.attached
        else:
            yield [Part("paragraph", f"User: {message.text}")], message.attached


def _days(chat: _Chat, level: int) -> Iterator[Part]:
    day = ""
    for message in chat.messages:
        moment = f"{message.at:%Y-%m-%d %H:%M}" if message.at else ""
        if moment and not moment.startswith(day or " ") and not message.in_thread:
            day = moment[:10]
            yield heading(channel_day(chat.channel, day), level)
        time = f" ({moment.removeprefix(f'{day} ')})" if moment else ""
        mark = "↳ " if message.in_thread else ""
        yield Part("paragraph", f"{mark}{message.sender}{time}: {message.text}")


def _chats(value: object, folder: str) -> Iterator[_Chat]:
    """The conversations of an export; none for other JSON values."""
    if isinstance(value, dict):
        yield from _telegram_chats(value)
        if isinstance(value.get("guild"), dict) and isinstance(value.get("channel"), dict):
            title = ", ".join(filter(None, (string(value[key], "name") for key in ("guild", "channel"))))
            yield _Chat(title, [*_discord_messages(dicts(value.get("messages")))])
        if "participants" in value:
            title = string(value, "title") or string(value, "threadName")
            yield _Chat(title, [*_messenger_messages(dicts(value.get("messages")))])
        return
    items = dicts(value)
    if items and all(isinstance(item.get("mapping"), dict) for item in items):
        for item in items:
            yield _Chat(string(item, "title"), [*_chatgpt_messages(item)], with_assistant=True)
    elif items and all(isinstance(item.get("chat_messages"), list) for item in items):
        for item in items:
            yield _Chat(string(item, "name"), [*_claude_messages(item)], with_assistant=True)
    elif items and all(item.get("type") == "message" and "ts" in item for item in items):
        yield _Chat("", [*_slack_messages(items)], channel=folder)


def _telegram_chats(export: dict[str, Any]) -> Iterator[_Chat]:
    """The chats of an account, also the ones that its owner left; or the only chat that was exported."""
    lists = [mapping(export.get(key)).get("list") for key in ("chats", "left_chats")]
    for chat in [chat for listed in lists for chat in dicts(listed)] or [export]:
        if "type" in chat and any("date_unixtime" in message for message in dicts(chat.get("messages"))):
            yield _Chat(string(chat, "name"), [*_telegram_messages(chat)])


def _telegram_messages(chat: Mapping[str, Any]) -> Iterator[_Message]:
    """The messages in order. An answer quotes the beginning of what it answers, as the program shows it."""
    quotes: dict[int, str] = {}
    for message in dicts(chat.get("messages")):
        text_or_pieces = message.get("text", "")
        pieces = text_or_pieces if isinstance(text_or_pieces, list) else [text_or_pieces]
        text = "".join(map(_telegram_text, pieces))
        message_text = " ".join(filter(None, (clean(text).strip(), *_telegram_extras(message))))
        if message.get("type") == "message" and message_text:
            sender = string(message, "from") or "somebody"
            quote = f"{sender} “{shortened(message_text, _MAX_QUOTE)}”"
            author = string(message, "forwarded_from")
            sender += f", forwarded from {author}" if author else ""
            number, answered = message.get("id"), message.get("reply_to_message_id")
            if isinstance(answered, int) and answered in quotes and "reply_to_peer_id" not in message:
                sender += f", to {quotes[answered]}"
            if isinstance(number, int):
                quotes[number] = quote
            yield _Message(sender, date(string(message, "date")), message_text)


def _telegram_text(piece: object) -> str:
    """A piece of a text; behind the words of a link is where it leads."""
    if isinstance(piece, str):
        return piece
    text, address = string(piece, "text"), string(piece, "href")
    return f"{text} ({address})" if address and address not in text else text


def _telegram_extras(message: Mapping[str, Any]) -> Iterator[str]:
    if media := next((key.replace("_", " ") for key in _MEDIA if message.get(key)), ""):
        file = string(message, "file_name")
        yield f"({media}: {file})" if file else f"({media})"
    if isinstance(poll := message.get("poll"), dict):
        answers = [
            string(answer, "text") + (f" ({answer['voters']})" if "voters" in answer else "")
            for answer in dicts(poll.get("answers"))
        ]
        yield f"(poll: {string(poll, 'question')} {'; '.join(answers)})"
    if isinstance(person := message.get("contact_information"), dict):
        about = " ".join(string(person, key) for key in ("first_name", "last_name", "phone_number"))
        yield f"(contact: {one_line(about)})"
    if isinstance(spot := message.get("location_information"), dict):
        names = [string(message, key) for key in ("place_name", "address")]
        point = f"{spot.get('latitude')}, {spot.get('longitude')}"
        yield f"(place: {one_line(', '.join(filter(None, names))) or point})"


def _discord_messages(items: list[dict[str, Any]]) -> Iterator[_Message]:
    """The messages of a channel, as DiscordChatExporter writes them. An answer quotes what it answers."""
    quotes: dict[str, str] = {}
    for item in items:
        text = clean("\n".join(filter(None, _discord_texts(item)))).strip()
        if text and string(item, "type") not in _UNSHOWN:
            author = item.get("author")
            sender = string(author, "nickname") or string(author, "name") or "somebody"
            quotes[string(item, "id")] = f"{sender} “{shortened(one_line(text), _MAX_QUOTE)}”"
            if answered := quotes.get(string(item.get("reference"), "messageId")):
                sender += f", to {answered}"
            yield _Message(sender, date(string(item, "timestamp")), text)


def _discord_texts(item: Mapping[str, Any]) -> Iterator[str]:
    yield string(item, "content")
    yield string(item.get("forwardedMessage"), "content")
    for embed in dicts(item.get("embeds")):
        yield from (string(embed, key) for key in ("title", "description"))
        yield from (f"{string(pair, 'name')}: {string(pair, 'value')}" for pair in dicts(embed.get("fields")))
    yield from (f"(file: {string(file, 'fileName')})" for file in dicts(item.get("attachments")))
    yield from (f"(sticker: {string(sticker, 'name')})" for sticker in dicts(item.get("stickers")))


def _messenger_messages(items: list[dict[str, Any]]) -> Iterator[_Message]:
    """The messages of Facebook, Instagram and Messenger, whose files begin with the last one.

    Chats that are encrypted end to end have other keys.
    """
    messages: list[tuple[int, _Message]] = []
    for item in items:
        sender = string(item, "sender_name") or string(item, "senderName")
        milliseconds = item.get("timestamp_ms", item.get("timestamp"))
        text = clean(" ".join(filter(None, _messenger_texts(item)))).strip()
        if sender and text and isinstance(milliseconds, int):
            messages.append((milliseconds, _Message(sender, moment_of(milliseconds / 1000), text)))
    for _, message in sorted(messages, key=lambda pair: pair[0]):
        yield message


def _messenger_texts(item: Mapping[str, Any]) -> Iterator[str]:
    text, share = string(item, "content") or string(item, "text"), item.get("share")
    yield text
    yield from (part for key in ("share_text", "link") if (part := string(share, key)) not in text)
    yield from (f"({key.partition('_')[0].rstrip('s')})" for key in _MESSENGER_MEDIA if item.get(key))


def _slack_messages(items: list[dict[str, Any]]) -> Iterator[_Message]:
    """The messages of a channel, each thread below the message that began it."""
    names = _slack_names(items)
    visible = (item for item in items if not item.get("hidden") and string(item, "subtype") not in _UNSHOWN)
    posts = [
        (item, _slack_sender(item, names), text) for item in visible if (text := _slack_text(item, names))
    ]
    places = {ts: at for at, (item, _, _) in enumerate(posts) if (ts := string(item, "ts"))}
    threads = [places.get(string(item, "thread_ts"), at) for at, (item, _, _) in enumerate(posts)]
    # An answer amid other messages can't be told from answers to these: it goes below what it answers.
    for at, first in sorted(enumerate(threads), key=lambda pair: (pair[1], pair[0] != pair[1])):
        item, sender, text = posts[at]
        if first == at:
            sender += _thread_elsewhere(item, names)
        elif (asker := posts[first][1]) != sender:
            sender += f", to {asker}"
        yield _Message(sender, moment_of(item.get("ts")), text, in_thread=first != at)


def _slack_names(items: list[dict[str, Any]]) -> dict[str, str]:
    """The names of people by their ids, from the profiles in their messages.

    The export has all of them in users.json, but that is another document, which not everybody may see who
    sees this one.
    """
    names = {"USLACKBOT": "Slackbot"}
    for item in items:
        stated = (string(item.get("user_profile"), key) for key in ("real_name", "display_name", "name"))
        if name := next(filter(None, stated), ""):
            names[string(item, "user")] = name
    return names


def _slack_sender(item: Mapping[str, Any], names: Mapping[str, str]) -> str:
    user = string(item, "user")
    program = string(item, "username") or string(item.get("bot_profile"), "name")
    return names.get(user) or program or user or "somebody"


def _thread_elsewhere(item: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """What an answer tells of its thread, which an earlier file began; "" for other messages."""
    begun, asker = string(item, "thread_ts"), string(item, "parent_user_id")
    moment = moment_of(begun) if begun != string(item, "ts") else None
    to = f", to {names.get(asker, asker)}" if asker and asker != item.get("user") else ""
    return f"{to}, in a thread of {moment:%Y-%m-%d %H:%M}" if moment else ""


def _slack_text(item: Mapping[str, Any], names: Mapping[str, str]) -> str:

    def plain(link: re.Match[str]) -> str:
        target, label = link[1], link[2] or ""
        if target.startswith("@"):
            return f"@{label or names.get(target[1:]) or target[1:]}"
        if target.startswith(("#", "!")):
            return f"{target[0].strip('!')}{label or target[1:]}"
        return f"{label} ({target})" if label and label not in target else target

    text = clean(html.unescape(_LINK.sub(plain, "\n".join(filter(None, _slack_texts(item)))))).strip()
    files = ", ".join(filter(None, (string(file, "name") for file in dicts(item.get("files")))))
    return " ".join(filter(None, (text, f"(file: {files})" if files else "")))


def _slack_texts(item: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a message: its own or the text of its blocks, attachments of programs, and snippets."""
    yield string(item, "text") or _block_text(item.get("blocks"))
    for attachment in dicts(item.get("attachments")):
        texts = [string(attachment, key) for key in ("pretext", "title", "text")]
        texts += [
            f"{string(pair, 'title')}: {string(pair, 'value')}" for pair in dicts(attachment.get("fields"))
        ]
        texts += [_block_text(attachment.get("blocks"))]
        yield "\n".join(filter(None, texts)) or string(attachment, "fallback")
    for file in dicts(item.get("files")):
        if file.get("mode") in {"snippet", "post"}:
            yield string(file, "plain_text") or string(file, "preview")


def _block_text(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(filter(None, map(_block_text, value)))
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    if value.get("type") == "rich_text_section":  # words of one line
        return "".join(map(_block_text, dicts(value.get("elements"))))
    inner = (value.get("text") or value.get("url"), value.get("fields"), value.get("elements"))
    return "\n".join(filter(None, map(_block_text, inner)))


def _chatgpt_messages(conversation: Mapping[str, Any]) -> Iterator[_Message]:
    """The visible messages: the branch that ends at the current message."""
    nodes = conversation["mapping"]
    at: object = conversation.get("current_node") or next(reversed(nodes), "")
    branch: list[Mapping[str, Any]] = []
    visited: set[str] = set()
    while isinstance(at, str) and isinstance(node := nodes.get(at), dict) and at not in visited:
        visited.add(at)
        message = mapping(node.get("message"))
        if not mapping(message.get("metadata")).get("is_visually_hidden_from_conversation"):
            branch.append(message)
        at = node.get("parent")
    for message in reversed(branch):
        role = string(message.get("author"), "role")
        text, attached = _chatgpt_texts(message) if role in {"user", "assistant"} else ("", "")
        if text or attached:
            yield _Message(role.title(), moment_of(message.get("create_time")), text, attached)


def _chatgpt_texts(message: Mapping[str, Any]) -> tuple[str, str]:
    """What a message says, typed or spoken; and the document that it writes, or the code that it runs."""
    content = mapping(message.get("content"))
    parts = content.get("parts")
    texts = [
        part if isinstance(part, str) else string(part, "text")
        for part in (parts if isinstance(parts, list) else ())
    ]
    message_text = clean(_MARKS.sub(_marked, "\n\n".join(filter(None, texts)))).strip()
    code, recipient = string(content, "text"), string(message, "recipient")
    if content.get("content_type") != "code" or not code:
        return message_text, ""
    if recipient == "python":
        return message_text, clean(f"```python\n{code}\n```")
    try:
        document = mapping(json.loads(code)) if recipient.startswith("canmore.") else {}
    except (ValueError, RecursionError):
        document = {}
    document_texts = [
        string(document, "content"),
        *(string(new, "replacement") for new in dicts(document.get("updates"))),
    ]
    return message_text, clean("\n\n".join(filter(None, [string(document, "name"), *document_texts]))).strip()


def _marked(mark: re.Match[str]) -> str:
    """The name of a thing. Example: entity, ["city","Berlin","capital"] -> Berlin; sources say nothing."""
    names = re.findall(r'"([^"]*)"', mark["about"] or "") if mark["kind"] == "entity" else []
    return names[1] if len(names) > 1 else ""


def _claude_messages(conversation: Mapping[str, Any]) -> Iterator[_Message]:
    for message in dicts(conversation["chat_messages"]):
        text = clean(string(message, "text")).strip()
        attached = clean("\n\n".join(_claude_texts(message))).strip()
        if text or attached:
            sender = "User" if message.get("sender") == "human" else "Assistant"
            yield _Message(sender, date(string(message, "created_at")), text, attached)


def _claude_texts(message: Mapping[str, Any]) -> Iterator[str]:
    """The texts that came with a message: what was pasted or uploaded, and the documents of an answer."""
    for file in dicts(message.get("attachments")):
        if content := string(file, "extracted_content"):
            yield f"{string(file, 'file_name') or 'Pasted'}:\n\n{content}"
    for block in dicts(message.get("content")):
        if block.get("type") == "tool_use" and isinstance(document := block.get("input"), dict):
            content = string(document, "content") or string(document, "new_str")
            yield "\n\n".join(filter(None, (string(document, "title"), content)))


def mapping(value: object) -> dict[str, object]:
    """A mapping; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def string(item: object, key: str) -> str:
    """The text that a mapping has under a key; "" for anything else."""
    value = mapping(item).get(key)
    return value if isinstance(value, str) else ""


def dicts(value: object) -> list[dict[str, Any]]:
    """The mappings in a list; none for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def moment_of(seconds: object) -> datetime | None:
    """A moment from seconds since 1970, which Slack writes as text."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)  # type: ignore[arg-type]  # the errors of others are caught
    except (TypeError, ValueError, OverflowError, OSError):
        return None

"""JSON with text for people: Jupyter notebooks, JSON Feed (jsonfeed.org, version 1.1), and exports of chats.

Notebooks are read as text and code in order, with the outputs that are text; feeds as a section for each
entry. In chats (Slack, Telegram, ChatGPT and Claude) a day or a conversation is a section, and each message a
paragraph: who, to whom, when, what. A question to an assistant heads its answer. Ids and reactions are
omitted.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, NamedTuple

from rag.corpus import Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse import html_page, markdown
from rag.ingest.parse.document_parts import Part, clean, date, facts, heading, title_line
from rag.ingest.parse.titles_and_questions import MAX_QUESTION
from rag.ingest.parse.xml_document import composed_entries, entry_head
from rag.report import shortened
from rag.text.plain_text import one_line
from rag.uris import web_address

NOTEBOOK_SUFFIXES = (".ipynb",)

_MAX_OUTPUT = 4000  # characters of one output: a training log would drown the rest
_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)
_IMAGE = re.compile(
    r"!\[((?:[^\]!]|!(?!\[))*+)\]\((?:data:|attachment:)(?:[^)!]|!(?!\[))*+\)"
    r"|<img\b[^<>]{0,1000}?\bsrc=[\"']data:(?:[^<>]|<(?!img\b))*+>"
)


def parse_notebook(text: str, name: str) -> Document:
    """The document of a notebook, read as Markdown with fenced code.

    Raises:
        ParseError: the file is not a notebook.
    """
    try:
        book = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("the notebook is damaged: it is not valid JSON") from error
    cells = _cells(book)
    if cells is None:
        raise ParseError("it is not a notebook: it has no cells")
    about = _mapping(book.get("metadata"))
    kernel = _mapping(about.get("kernelspec")) | _mapping(about.get("language_info"))
    language = _string(kernel, "language") or _string(kernel, "name")
    document = markdown.parse(
        clean("\n\n".join(part for cell in cells for part in _parts(cell, language))), name
    )
    stated = facts(author=[_string(author, "name") for author in _dicts(about.get("authors"))])
    return replace(
        document,
        title=_string(about, "title") or document.title,
        mime_type="application/x-ipynb+json",
        metadata={**stated, **document.metadata},
    )


def _cells(book: object) -> list[dict[str, Any]] | None:
    """The cells, None if the notebook has none. Format 3 keeps them in worksheets."""
    sheets = _mapping(book).get("worksheets")
    books = sheets if isinstance(sheets, list) else [book]
    cell_lists = [cells for sheet in books if isinstance(cells := _mapping(sheet).get("cells"), list)]
    return [cell for cells in cell_lists for cell in _dicts(cells)] if cell_lists else None


def _parts(cell: dict[str, object], language: str) -> Iterator[str]:
    text = _source_text(cell.get("source", cell.get("input"))).strip("\n")
    match cell.get("cell_type"):
        case "markdown" | "raw":
            yield _IMAGE.sub(r"\1", text)
        case "heading":
            level = cell.get("level")
            yield f"{'#' * (level if isinstance(level, int) else 1)} {text}"
        case "code":
            yield _fenced_block(text, language)
            outputs = cell.get("outputs")
            for output in outputs if isinstance(outputs, list) else []:
                yield _output_text(_mapping(output))


def _output_text(output: dict[str, object]) -> str:
    """An output that is text: a table as a table, an error without its traceback."""
    if output.get("output_type") in {"error", "pyerr"}:
        return _fenced_block(f"{_source_text(output.get('ename'))}: {_source_text(output.get('evalue'))}", "")
    data = _mapping(output.get("data")) or output
    page = _source_text(data.get("text/html") or data.get("html"))
    if "<table" in page:
        return html_page.content_of(page[: 10 * _MAX_OUTPUT])[:_MAX_OUTPUT]
    if text := _source_text(data.get("text/markdown") or data.get("text/latex")):
        return _IMAGE.sub(r"\1", text)[:_MAX_OUTPUT]
    return _fenced_block(_short_output(_source_text(data.get("text/plain") or data.get("text"))), "")


def _short_output(text: str) -> str:
    excess = len(text) - _MAX_OUTPUT
    return f"{text[:_MAX_OUTPUT]}\n… ({excess:,} more characters)" if excess > 0 else text


def _fenced_block(text: str, language: str) -> str:
    text = clean(text).strip("\n")
    longest = max((len(match[1]) for match in _FENCE.finditer(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}" if text.strip() else ""


def _source_text(value: object) -> str:
    """A text, which may be stored as a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


_VERSION = "https://jsonfeed.org/version/1"
_DATES = ("date_published", "date_modified")


def export_document(value: object, name: str, folder: str) -> Document | None:
    """The document of a JSON Feed, a chat export or a note; None for other JSON values.

    `folder` is the one that the file is in.

    Raises:
        EmptyFileError: it is a note that is in the trash.
    """
    return _feed_document(value, name) or _chat_document(value, name, folder) or _note_document(value, name)


def _feed_document(value: object, name: str) -> Document | None:
    """The document of a feed: for each entry its date, author, address and text."""
    feed = _mapping(value)
    if not (_feed_text(feed, "version").startswith(_VERSION) and isinstance(feed.get("items"), list)):
        return None
    entries = _dicts(feed["items"])
    text, blocks = composed_entries((_head(entry), _body(entry)) for entry in entries)
    return Document(
        text=text,
        title=_feed_text(feed, "title") or name,
        mime_type="application/feed+json",
        blocks=blocks,
        url=web_address(_feed_text(feed, "home_page_url")),
        metadata=facts(
            author=_people(feed),
            language=_feed_text(feed, "language"),
            description=_feed_text(feed, "description"),
        ),
    )


def _head(entry: Mapping[str, Any]) -> Iterator[Part]:
    day = next((day for key in _DATES if (day := date(_feed_text(entry, key)))), None)
    address = _feed_text(entry, "url") or _feed_text(entry, "external_url")
    return entry_head(_feed_text(entry, "title") or _feed_text(entry, "id"), day, _people(entry), address)


def _body(entry: Mapping[str, Any]) -> str:
    if content := _string(entry, "content_html"):
        return html_page.content_of(content)
    return clean(_string(entry, "content_text") or _string(entry, "summary"))


def _people(item: Mapping[str, Any]) -> list[str]:
    """The names of the authors; version 1 had one."""
    authors = item.get("authors")
    several = authors if isinstance(authors, list) else [item.get("author")]
    return [name for author in several if (name := _feed_text(author, "name"))]


def _feed_text(item: object, key: str) -> str:
    return one_line(clean(_string(item, key)))


def _string(item: object, key: str) -> str:
    """The text that a mapping has under a key; "" for anything else."""
    value = _mapping(item).get(key)
    return value if isinstance(value, str) else ""


_CARDS = frozenset({"text", "file", "link", "group"})


def _note_document(value: object, name: str) -> Document | None:
    """The document of a note of Google Keep or a canvas of Obsidian."""
    note = _mapping(value)
    edited, cards = note.get("userEditedTimestampUsec"), _dicts(note.get("nodes"))
    if "isTrashed" in note and isinstance(edited, int):
        if note["isTrashed"] is True:
            raise EmptyFileError("the note isn't kept")
        text, blocks = composed_entries([((), "\n\n".join(filter(None, _keep_texts(note))))])
        title = _feed_text(note, "title") or name
        return Document(text, title, "application/json", blocks, date=_moment(edited / 1e6))
    if cards and all(card.get("type") in _CARDS and "x" in card for card in cards):
        text, blocks = composed_entries(
            ((), text) for text in _canvas_texts(cards, _dicts(note.get("edges")))
        )
        return Document(text, name, "application/json", blocks)
    return None


def _keep_texts(note: Mapping[str, object]) -> Iterator[str]:
    """The labels of a note, its text, its list with what is ticked, and the pages that it links."""
    yield " ".join(f"#{label}" for item in _dicts(note.get("labels")) if (label := _feed_text(item, "name")))
    yield clean(_string(note, "textContent"))
    yield "\n".join(
        f"- [{'x' if item.get('isChecked') is True else ' '}] {_feed_text(item, 'text')}"
        for item in _dicts(note.get("listContent"))
    )
    for page in _dicts(note.get("annotations")):
        yield " ".join(filter(None, (_feed_text(page, "title"), _feed_text(page, "url"))))


def _canvas_texts(cards: list[dict[str, Any]], arrows: list[dict[str, Any]]) -> Iterator[str]:
    """What the cards of a canvas say, in their order in the file; then its labelled arrows."""
    texts = {}
    for card in cards:
        text = markdown.parse(clean(_string(card, "text")), "").text or _feed_text(card, "label")
        file = f"[[{_feed_text(card, 'file')}]]" if "file" in card else ""
        text = text or file or _feed_text(card, "url")
        texts[_string(card, "id")] = text
        yield text
    for arrow in arrows:
        cards_of = (texts.get(_string(arrow, key), "") for key in ("fromNode", "toNode"))
        ends = (text.partition("\n")[0].lstrip("# ") for text in cards_of)
        if label := _feed_text(arrow, "label"):
            yield f" → {label} → ".join(ends)


_LINK = re.compile(r"<([^<>|\s]+)(?:\|([^<>]*))?>")
_MEDIA = ("photo", "file", "media_type", "sticker_emoji")
_MOST_NESTED = 12  # blocks in blocks of a message
_MAX_QUOTE = 60  # characters of a message that an answer to it quotes
_UNSHOWN = frozenset(
    {"channel_join", "channel_leave", "group_join", "group_leave", "bot_add", "bot_remove", "tombstone"}
)


class _Message(NamedTuple):
    """A message; the sender is "User" for questions to an assistant. `attached` is text that came with it.

    One that is `in_thread` stands below the message that it answers, whatever was written in between.
    """

    sender: str
    at: datetime | None
    text: str
    attached: str = ""
    in_thread: bool = False

    @property
    def whole(self) -> str:
        """The text with what is attached."""
        return "\n\n".join(filter(None, (self.text, self.attached)))


class _Chat(NamedTuple):
    """A conversation, with people or with an assistant; or what was written in a `channel` on a day."""

    title: str
    messages: list[_Message]
    with_assistant: bool = False
    channel: str = ""


def channel_day(channel: str, day: str) -> str:
    """The title of what was written in a channel on a day: "general, 2024-03-12"."""
    return f"{channel}, {day}" if channel else day


def _chat_document(value: object, name: str, folder: str) -> Document | None:
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
            yield [Part("paragraph", f"{message.sender}:")], message.whole
        elif is_short and message.text:
            yield [heading(message.text, level)], message.attached
        else:
            yield [Part("paragraph", f"User: {message.text}")], message.attached


def _days(chat: _Chat, level: int) -> Iterator[Part]:
    """The messages of people, below the date of each day."""
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
        return
    items = _dicts(value)
    if items and all(isinstance(item.get("mapping"), dict) for item in items):
        for item in items:
            yield _Chat(_string(item, "title"), [*_chatgpt_messages(item)], with_assistant=True)
    elif items and all(isinstance(item.get("chat_messages"), list) for item in items):
        for item in items:
            yield _Chat(_string(item, "name"), [*_claude_messages(item)], with_assistant=True)
    elif items and all(item.get("type") == "message" and "ts" in item for item in items):
        yield _Chat("", [*_slack_messages(items)], channel=folder)


def _telegram_chats(export: dict[str, Any]) -> Iterator[_Chat]:
    """The chats of an account, those included that one has left; or the one of which this is an export."""
    lists = [_mapping(export.get(key)).get("list") for key in ("chats", "left_chats")]
    for chat in [chat for listed in lists for chat in _dicts(listed)] or [export]:
        if "type" in chat and any("date_unixtime" in message for message in _dicts(chat.get("messages"))):
            yield _Chat(_string(chat, "name"), [*_telegram_messages(chat)])


def _telegram_messages(chat: Mapping[str, Any]) -> Iterator[_Message]:
    """The messages in order. An answer quotes the beginning of what it answers, as the program shows it."""
    quotes: dict[int, str] = {}
    for message in _dicts(chat.get("messages")):
        text_or_pieces = message.get("text", "")
        pieces = text_or_pieces if isinstance(text_or_pieces, list) else [text_or_pieces]
        text = "".join(map(_telegram_text, pieces))
        message_text = " ".join(filter(None, (clean(text).strip(), *_telegram_extras(message))))
        if message.get("type") == "message" and message_text:
            sender = _string(message, "from") or "somebody"
            quote = f"{sender} “{shortened(message_text, _MAX_QUOTE)}”"
            author = _string(message, "forwarded_from")
            sender += f", forwarded from {author}" if author else ""
            number, answered = message.get("id"), message.get("reply_to_message_id")
            if isinstance(answered, int) and answered in quotes and "reply_to_peer_id" not in message:
                sender += f", to {quotes[answered]}"
            if isinstance(number, int):
                quotes[number] = quote
            yield _Message(sender, date(_string(message, "date")), message_text)


def _telegram_text(piece: object) -> str:
    """A piece of a text; behind the words of a link is where it leads."""
    if isinstance(piece, str):
        return piece
    text, address = _string(piece, "text"), _string(piece, "href")
    return f"{text} ({address})" if address and address not in text else text


def _telegram_extras(message: Mapping[str, Any]) -> Iterator[str]:
    """What a message has besides its text: a picture or a file, a poll, a contact."""
    if media := next((key.replace("_", " ") for key in _MEDIA if message.get(key)), ""):
        file = _string(message, "file_name")
        yield f"({media}: {file})" if file else f"({media})"
    if isinstance(poll := message.get("poll"), dict):
        answers = [
            _string(answer, "text") + (f" ({answer['voters']})" if "voters" in answer else "")
            for answer in _dicts(poll.get("answers"))
        ]
        yield f"(poll: {_string(poll, 'question')} {'; '.join(answers)})"
    if isinstance(person := message.get("contact_information"), dict):
        about = " ".join(_string(person, key) for key in ("first_name", "last_name", "phone_number"))
        yield f"(contact: {one_line(about)})"
    if isinstance(spot := message.get("location_information"), dict):
        names = [_string(message, key) for key in ("place_name", "address")]
        point = f"{spot.get('latitude')}, {spot.get('longitude')}"
        yield f"(place: {one_line(', '.join(filter(None, names))) or point})"


def _slack_messages(items: list[dict[str, Any]]) -> Iterator[_Message]:
    """The messages of a channel, each thread below the message that began it."""
    names = _slack_names(items)
    visible = (item for item in items if not item.get("hidden") and _string(item, "subtype") not in _UNSHOWN)
    posts = [
        (item, _slack_sender(item, names), text) for item in visible if (text := _slack_text(item, names))
    ]
    places = {ts: at for at, (item, _, _) in enumerate(posts) if (ts := _string(item, "ts"))}
    threads = [places.get(_string(item, "thread_ts"), at) for at, (item, _, _) in enumerate(posts)]
    for at, first in sorted(enumerate(threads), key=lambda pair: (pair[1], pair[0] != pair[1])):
        item, sender, text = posts[at]
        if first == at:
            sender += _thread_elsewhere(item, names)
        elif (asker := posts[first][1]) != sender:
            sender += f", to {asker}"
        yield _Message(sender, _moment(item.get("ts")), text, in_thread=first != at)


def _slack_names(items: list[dict[str, Any]]) -> dict[str, str]:
    """The names of people by their ids, from the profiles in their messages.

    The export has all of them in users.json, but that is another document, which not everybody may see who
    sees this one.
    """
    names = {"USLACKBOT": "Slackbot"}
    for item in items:
        stated = (_string(item.get("user_profile"), key) for key in ("real_name", "display_name", "name"))
        if name := next(filter(None, stated), ""):
            names[_string(item, "user")] = name
    return names


def _slack_sender(item: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Who wrote a message: a person, or a program."""
    user = _string(item, "user")
    program = _string(item, "username") or _string(item.get("bot_profile"), "name")
    return names.get(user) or program or user or "somebody"


def _thread_elsewhere(item: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """What an answer tells of its thread, which an earlier file began; "" for other messages."""
    begun, asker = _string(item, "thread_ts"), _string(item, "parent_user_id")
    moment = _moment(begun) if begun != _string(item, "ts") else None
    to = f", to {names.get(asker, asker)}" if asker and asker != item.get("user") else ""
    return f"{to}, in a thread of {moment:%Y-%m-%d %H:%M}" if moment else ""


def _slack_text(item: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The text of a message with the names of people and files in it."""

    def plain(link: re.Match[str]) -> str:
        target, label = link[1], link[2] or ""
        if target.startswith("@"):
            return f"@{label or names.get(target[1:]) or target[1:]}"
        if target.startswith(("#", "!")):
            return f"{target[0].strip('!')}{label or target[1:]}"
        return f"{label} ({target})" if label and label not in target else target

    text = clean(html.unescape(_LINK.sub(plain, "\n".join(filter(None, _slack_texts(item)))))).strip()
    files = ", ".join(filter(None, (_string(file, "name") for file in _dicts(item.get("files")))))
    return " ".join(filter(None, (text, f"(file: {files})" if files else "")))


def _slack_texts(item: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a message: its own or that of its blocks, those of programs, and snippets."""
    yield _string(item, "text") or _block_text(item.get("blocks"))
    for attachment in _dicts(item.get("attachments")):
        texts = [_string(attachment, key) for key in ("pretext", "title", "text")]
        texts += [
            f"{_string(pair, 'title')}: {_string(pair, 'value')}" for pair in _dicts(attachment.get("fields"))
        ]
        texts += [_block_text(attachment.get("blocks"))]
        yield "\n".join(filter(None, texts)) or _string(attachment, "fallback")
    for file in _dicts(item.get("files")):
        if file.get("mode") in {"snippet", "post"}:
            yield _string(file, "plain_text") or _string(file, "preview")


def _block_text(value: object, depth: int = 0) -> str:
    """The text in blocks of a message in Slack, however they are nested."""
    if depth > _MOST_NESTED:
        return ""
    if isinstance(value, list):
        return "\n".join(filter(None, (_block_text(item, depth + 1) for item in value)))
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    if value.get("type") == "rich_text_section":  # words of one line
        return "".join(_block_text(item, depth + 1) for item in _dicts(value.get("elements")))
    inner = (value.get("text") or value.get("url"), value.get("fields"), value.get("elements"))
    return "\n".join(filter(None, (_block_text(item, depth + 1) for item in inner)))


def _chatgpt_messages(conversation: Mapping[str, Any]) -> Iterator[_Message]:
    """The visible messages: the branch that ends at the current message."""
    nodes = conversation["mapping"]
    at: object = conversation.get("current_node") or next(reversed(nodes), "")
    branch: list[Mapping[str, Any]] = []
    visited: set[str] = set()
    while isinstance(at, str) and isinstance(node := nodes.get(at), dict) and at not in visited:
        visited.add(at)
        message = _mapping(node.get("message"))
        if not _mapping(message.get("metadata")).get("is_visually_hidden_from_conversation"):
            branch.append(message)
        at = node.get("parent")
    for message in reversed(branch):
        role = _string(message.get("author"), "role")
        text, attached = _chatgpt_texts(message) if role in {"user", "assistant"} else ("", "")
        if text or attached:
            yield _Message(role.title(), _moment(message.get("create_time")), text, attached)


def _chatgpt_texts(message: Mapping[str, Any]) -> tuple[str, str]:
    """What a message says, typed or spoken; and the document that it writes, or the code that it runs."""
    content = _mapping(message.get("content"))
    parts = content.get("parts")
    texts = [
        part if isinstance(part, str) else _string(part, "text")
        for part in (parts if isinstance(parts, list) else ())
    ]
    message_text = clean(_MARKS.sub(_marked, "\n\n".join(filter(None, texts)))).strip()
    code, recipient = _string(content, "text"), _string(message, "recipient")
    if content.get("content_type") != "code" or not code:
        return message_text, ""
    if recipient == "python":
        return message_text, clean(f"```python\n{code}\n```")
    try:
        document = _mapping(json.loads(code)) if recipient.startswith("canmore.") else {}
    except (ValueError, RecursionError):
        document = {}
    document_texts = [
        _string(document, "content"),
        *(_string(new, "replacement") for new in _dicts(document.get("updates"))),
    ]
    return message_text, clean(
        "\n\n".join(filter(None, [_string(document, "name"), *document_texts]))
    ).strip()


_MARKS = re.compile("\ue200(?P<kind>[a-z_]+)\ue202(?P<about>[^\ue200\ue201]*)\ue201|【[0-9:]+†[^【】]*】")
"""What ChatGPT marks in an answer: the sources of a sentence, and things that it shows as cards."""


def _marked(mark: re.Match[str]) -> str:
    """The name of a thing. Example: entity, ["city","Berlin","capital"] -> Berlin; sources say nothing."""
    names = re.findall(r'"([^"]*)"', mark["about"] or "") if mark["kind"] == "entity" else []
    return names[1] if len(names) > 1 else ""


def _claude_messages(conversation: Mapping[str, Any]) -> Iterator[_Message]:
    for message in _dicts(conversation["chat_messages"]):
        text = clean(_string(message, "text")).strip()
        attached = clean("\n\n".join(_claude_texts(message))).strip()
        if text or attached:
            sender = "User" if message.get("sender") == "human" else "Assistant"
            yield _Message(sender, date(_string(message, "created_at")), text, attached)


def _claude_texts(message: Mapping[str, Any]) -> Iterator[str]:
    """The texts that came with a message: what was pasted or uploaded, and the documents of an answer."""
    for file in _dicts(message.get("attachments")):
        if content := _string(file, "extracted_content"):
            yield f"{_string(file, 'file_name') or 'Pasted'}:\n\n{content}"
    for block in _dicts(message.get("content")):
        if block.get("type") == "tool_use" and isinstance(document := block.get("input"), dict):
            content = _string(document, "content") or _string(document, "new_str")
            yield "\n\n".join(filter(None, (_string(document, "title"), content)))


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _moment(seconds: object) -> datetime | None:
    """A moment from seconds since 1970, which Slack writes as text."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)  # type: ignore[arg-type]  # the errors of others are caught
    except (TypeError, ValueError, OverflowError, OSError):
        return None

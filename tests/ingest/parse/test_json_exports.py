"""Exports in JSON: chats and notebooks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rag.corpus import Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.parsers import parse
from tests.ingest.parse.document_shape import texts_of

# Exports of chats and notes: messages and notes as people read them, without what only the program
# needs.


def exported(value: object, name: str = "a.json") -> Document:
    return parse(json.dumps(value, indent=1).encode(), name)


def outline(document: Document) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in document.outline]


PROFILE = {"real_name": "Bob Builder", "avatar_hash": "x"}
SLACK = [
    {
        "type": "message",
        "user": "U2",
        "ts": "1704445001.000200",
        "client_msg_id": "1c9d-22",
        "text": "Who has the key of <#C12|boat-house>, <@U2>?",
        "user_profile": PROFILE,
        "blocks": [{"type": "rich_text", "block_id": "a"}],
    },
    {
        "type": "message",
        "subtype": "channel_join",
        "user": "U1",
        "ts": "1704445002",
        "text": "<@U1> has joined",
    },
    {
        "type": "message",
        "user": "U1",
        "ts": "1704531401.0",
        "text": "See <https://ex.com/a|the plan> &amp; ask",
        "files": [{"name": "plan.pdf"}],
        "reactions": [{"name": "+1", "users": ["U2"]}],
    },
]


def test_a_channel_of_slack_is_its_messages_by_day() -> None:
    document = exported(SLACK, "2024-01-05.json")
    assert document.text.split("\n\n") == [
        "# 2024-01-05",
        "Bob Builder (08:56): Who has the key of #boat-house, @Bob Builder?",
        "# 2024-01-06",
        "U1 (08:56): See the plan (https://ex.com/a) & ask (file: plan.pdf)",
    ]
    assert document.date == datetime(2024, 1, 6, 8, 56, 41, tzinfo=UTC)


def test_what_programs_post_in_slack_and_snippets_are_read() -> None:
    build = {
        "text": "details",
        "title": "Build failed",
        "fallback": "unseen",
        "fields": [{"title": "Branch", "value": "main"}],
    }
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "Ticket <https://x.org|T-1> closed"}}
    rich = {"type": "rich_text_section", "elements": [{"type": "text", "text": "By "}, {"text": "Ann"}]}
    posts: list[dict[str, object]] = [
        {"username": "CI", "text": "", "attachments": [build, {"fallback": "old build"}]},
        {"username": "Jira", "text": "", "blocks": [section, {"type": "rich_text", "elements": [rich]}]},
        {"user": "U1", "text": "", "files": [{"name": "a.py", "mode": "snippet", "preview": "print(1)"}]},
    ]
    value = [{"type": "message", "ts": "1704445001.0"} | post for post in posts]
    assert exported(value, "2024-01-05.json").text.split("\n\n")[1:] == [
        "CI (08:56): Build failed\ndetails\nBranch: main\nold build",
        "Jira (08:56): Ticket T-1 (https://x.org) closed\nBy Ann",
        "U1 (08:56): print(1) (file: a.py)",
    ]


def said(user: str, text: str, ts: str, **more: object) -> dict[str, object]:
    return {"type": "message", "user": user, "text": text, "ts": ts} | more


def by(name: str) -> dict[str, str]:
    return {"real_name": name}


QUESTION, OTHER = "1710230500.0001", "1710230510.0001"
THREADS = [
    said("U1", "Who has the code of the door?", QUESTION, user_profile=by("Ann Lee"), thread_ts=QUESTION),
    said("U2", "And of the gate?", OTHER, user_profile=by("Bob"), thread_ts=OTHER),
    said("U3", "tulip-77", "1710230570.0", thread_ts=OTHER, user_profile=by("Cid")),
    said("U4", "4471#", "1710230580.0", thread_ts=QUESTION, user_profile=by("Dan")),
    said("U1", "thanks", "1710230590.0", thread_ts=QUESTION),
    said("U2", "Lunch?", "1710230600.0"),
    said("U1", "It changed", "1710316910.0", thread_ts=QUESTION),
]


def test_answers_in_slack_stand_below_what_they_answer() -> None:
    assert exported(THREADS).text.split("\n\n") == [
        "# 2024-03-12",
        "Ann Lee (08:01): Who has the code of the door?",
        "↳ Dan, to Ann Lee (08:03): 4471#",
        "↳ Ann Lee (08:03): thanks",
        "↳ Ann Lee (2024-03-13 08:01): It changed",
        "Bob (08:01): And of the gate?",
        "↳ Cid, to Bob (08:02): tulip-77",
        "Bob (08:03): Lunch?",
    ]
    assert exported(THREADS).date == datetime(2024, 3, 13, 8, 1, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("about", "sender"),
    [
        ({"parent_user_id": "U2"}, "U1, to Bob, in a thread of 2024-03-12 08:01"),
        ({"parent_user_id": "U9"}, "U1, to U9, in a thread of 2024-03-12 08:01"),
        ({"parent_user_id": "U1"}, "U1, in a thread of 2024-03-12 08:01"),
        ({}, "U1, in a thread of 2024-03-12 08:01"),
        ({"thread_ts": "x"}, "U1"),
        ({"thread_ts": None, "ts": 1710316910.0}, "U1"),
    ],
)
def test_an_answer_in_slack_says_to_whom_if_the_question_is_elsewhere(
    about: dict[str, object], sender: str
) -> None:
    answer = said("U1", "9920#", "1710316910.0", thread_ts=QUESTION) | about
    value = [answer, said("U2", "Hi", "1710316920.0", user_profile=by("Bob"))]
    assert exported(value).text.split("\n\n")[1:] == [f"{sender} (08:01): 9920#", "Bob (08:02): Hi"]


def test_an_answer_to_what_nobody_sees_stands_below_nothing() -> None:
    question = said("U2", "This message was deleted.", QUESTION, subtype="tombstone", thread_ts=QUESTION)
    answer = said("U1", "Too late", "1710230580.0", thread_ts=QUESTION)
    for about in ({}, {"subtype": [], "hidden": True}, {"subtype": "", "text": ""}):
        gone = question | about
        assert exported([THREADS[-2], gone, answer]).text.split("\n\n")[2:] == [
            "U1, in a thread of 2024-03-12 08:01 (08:03): Too late"
        ]


def test_a_day_of_slack_is_called_by_its_channel_and_so_are_its_sections() -> None:
    document = exported(SLACK, "atlas/2024-01-05.json")
    assert document.title == "atlas, 2024-01-05"
    assert outline(document) == [(1, "atlas, 2024-01-05"), (1, "atlas, 2024-01-06")]
    assert exported(TELEGRAM, "atlas/result.json").title == "Boat club"
    assert exported([CHATGPT, CHATGPT], "atlas/conversations.json").title == "conversations"
    assert exported({"id": "long " * 99}, "atlas/2024-01-05.json").title == "2024-01-05.json"


def test_names_in_slack_come_from_any_profile_in_the_file_and_from_programs() -> None:
    value = [
        said("U1", "Hi <@U2>", "1710230500.0", user_profile={"real_name": "", "name": "ann"}),
        said("U1", "Bye", "1710230501.0", user_profile={"real_name": ""}),
        said("U2", "Done", "1710230502.0", bot_profile={"name": "Builder"}),
        said("USLACKBOT", "Remember", "1710230503.0"),
        said("U3", "Who?", "1710230504.0", user_profile=["x"]),
    ]
    assert exported(value).text.split("\n\n")[1:] == [
        "ann (08:01): Hi @U2",
        "ann (08:01): Bye",
        "Builder (08:01): Done",
        "Slackbot (08:01): Remember",
        "U3 (08:01): Who?",
    ]


TELEGRAM = {
    "name": "Boat club",
    "type": "private_group",
    "id": 4711,
    "messages": [
        {
            "id": 1,
            "type": "service",
            "date": "2024-01-05T10:00:00",
            "date_unixtime": "1",
            "text": "",
            "actor": "Ann",
        },
        {
            "id": 2,
            "type": "message",
            "date": "2024-01-05T10:01:00",
            "date_unixtime": "2",
            "from": "Ann",
            "from_id": "user1",
            "text": ["Look at ", {"type": "link", "text": "https://ex.com"}, "."],
        },
        {
            "id": 3,
            "type": "message",
            "date": "2024-01-06T10:01:00",
            "date_unixtime": "3",
            "from": "Bob",
            "photo": "photos/1.jpg",
            "text": "",
        },
    ],
}


@pytest.mark.parametrize("value", [TELEGRAM, {"about": "x", "chats": {"list": [TELEGRAM]}}])
def test_a_chat_of_telegram_is_its_messages_by_day(value: object) -> None:
    document = exported(value, "result.json")
    assert document.title == "Boat club"
    assert document.text.split("\n\n") == [
        "# 2024-01-05",
        "Ann (10:01): Look at https://ex.com.",
        "# 2024-01-06",
        "Bob (10:01): (photo)",
    ]


# As Meta writes it: an escape for each byte, the last message first.
FACEBOOK = r"""{"participants": [{"name": "Anna"}, {"name": "Petra M\u00c3\u00bcller"}], "messages": [
{"sender_name": "Anna", "timestamp_ms": 1773590000000, "photos": [{"uri": "photos/1.jpg"}]},
{"sender_name": "Anna", "timestamp_ms": 1773500100000,
 "content": "Sp\u00c3\u00a4ter \u00f0\u009f\u0098\u0080 \"",
 "share": {"link": "https://ex.com/a"}, "reactions": [{"reaction": "\u00e2\u009d\u00a4", "actor": "Petra"}]},
{"sender_name": "Petra M\u00c3\u00bcller", "timestamp_ms": 1773500000000,
 "content": "Unter der Fu\u00c3\u009fmatte"},
{"sender_name": "Anna", "timestamp_ms": 1773500000000, "is_unsent": true}],
"title": "Petra M\u00c3\u00bcller", "thread_path": "inbox/petra_1"}"""
ENCRYPTED = {
    "participants": ["Anna", "Petra Müller"],
    "threadName": "Petra Müller",
    "messages": [
        {"senderName": "Anna", "timestamp": 1773590000000, "text": "", "media": [{"uri": "./media/1.jpeg"}]},
        {
            "senderName": "Anna",
            "timestamp": 1773500100000,
            "text": 'Später 😀 " https://ex.com/a',
            "type": "text",
        },
        {"senderName": "Petra Müller", "timestamp": 1773500000000, "text": "Unter der Fußmatte"},
        {"senderName": "Anna", "timestamp": 1773500000000, "text": "", "isUnsent": True, "media": []},
    ],
}


@pytest.mark.parametrize(
    ("content", "media"), [(FACEBOOK, "photo"), (json.dumps(ENCRYPTED, ensure_ascii=False), "media")]
)
def test_a_chat_of_facebook_is_its_messages_by_day(content: str, media: str) -> None:
    document = parse(content.encode(), "message_1.json")
    assert document.title == "Petra Müller"
    assert document.date == datetime(2026, 3, 15, 15, 53, 20, tzinfo=UTC)
    assert document.text.split("\n\n") == [
        "# 2026-03-14",
        "Petra Müller (14:53): Unter der Fußmatte",
        'Anna (14:55): Später 😀 " https://ex.com/a',
        "# 2026-03-15",
        f"Anna (15:53): ({media})",
    ]


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"Gr\u00c3\u00bc\u00c3\u009fe", "Grüße"),
        (r"\u0022Gr\u00c3\u00bcn\u0022", r'"Grün"'),
        (r"\u00abLIBERT\u00c9\u00bb", "«LIBERTÉ»"),
        (r"\u00c9\u00bb \u2019", "É» ’"),
        (r"C:\\\u00c3\\u00bc", r"C:\Ã\u00bc"),
    ],
)
def test_escapes_mean_bytes_only_if_all_of_them_can(escaped: str, text: str) -> None:
    assert parse(f'[{{"said": "{escaped}", "by": 1}}]'.encode(), "a.json").text == f"said: {text}\nby: 1"


def discord_message(number: int, text: str, **more: object) -> dict[str, object]:
    author = {"id": "9", "name": "ann1", "nickname": "Ann", "isBot": False, "roles": []}
    times = {"timestamp": f"2024-08-12T09:4{number}:12.345+00:00", "timestampEdited": None}
    about = {"id": f"11500{number}", "type": "Default", "isPinned": False, "content": text, "author": author}
    return about | times | {"attachments": [], "embeds": [], "stickers": [], "reactions": []} | more


def test_a_channel_of_discord_is_its_messages_by_day() -> None:
    embed = {"title": "Tubes", "description": "All kinds", "fields": [{"name": "Price", "value": "389 €"}]}
    messages = [
        discord_message(1, "Joined the server.", type="GuildMemberJoin"),
        discord_message(2, "What is a new tube?"),
        discord_message(3, "About 389 euros", type="Reply", reference={"messageId": "115002"}),
        discord_message(4, "", embeds=[embed], attachments=[{"id": "1", "fileName": "bill.pdf"}]),
    ]
    guild, channel = {"id": "1", "name": "Makers"}, {"id": "2", "type": "GuildTextChat", "name": "general"}
    document = exported({"guild": guild, "channel": channel, "messages": messages})
    assert document.title == "Makers, general"
    assert document.date == datetime(2024, 8, 12, 9, 44, 12, 345000, tzinfo=UTC)
    assert document.text.split("\n\n") == [
        "# 2024-08-12",
        "Ann (09:42): What is a new tube?",
        "Ann, to Ann “What is a new tube?” (09:43): About 389 euros",
        "Ann (09:44): Tubes\nAll kinds\nPrice: 389 €\n(file: bill.pdf)",
    ]


def test_polls_contacts_and_names_of_files_are_read_in_telegram_and_who_wrote_what_is_forwarded() -> None:
    message = {
        "type": "message",
        "date": "2024-01-05T10:01:00",
        "date_unixtime": "2",
        "from": "Ann",
        "text": "",
    }
    spot = {"latitude": 52.5, "longitude": 13.4}
    extras: list[dict[str, object]] = [
        {"poll": {"question": "Lunch?", "answers": [{"text": "Yes", "voters": 2}, {"text": "No"}]}},
        {"contact_information": {"first_name": "Eve", "last_name": "Lee", "phone_number": "+49 1"}},
        {"file": "files/a.pdf", "file_name": "a.pdf"},
        {"forwarded_from": "Eve", "text": "Hi"},
        {"text": ["See ", {"type": "text_link", "text": "the plan", "href": "https://ex.org/p"}, "."]},
        {"location_information": spot, "place_name": "Café", "address": "Main St 1"},
        {"location_information": spot},
    ]
    value = {"name": "Club", "type": "private_group", "messages": [message | extra for extra in extras]}
    assert exported(value, "result.json").text.split("\n\n")[1:] == [
        "Ann (10:01): (poll: Lunch? Yes (2); No)",
        "Ann (10:01): (contact: Eve Lee +49 1)",
        "Ann (10:01): (file: a.pdf)",
        "Ann, forwarded from Eve (10:01): Hi",
        "Ann (10:01): See the plan (https://ex.org/p).",
        "Ann (10:01): (place: Café, Main St 1)",
        "Ann (10:01): (place: 52.5, 13.4)",
    ]


def test_an_answer_in_telegram_quotes_what_it_answers() -> None:
    def sent(number: object, sender: str, text: str, **more: object) -> dict[str, object]:
        about = {"type": "message", "date": "2024-01-05T10:01:00", "date_unixtime": "2"}
        return about | {"id": number, "from": sender, "text": text} | more

    messages = [
        sent(1, "Ann", "Meet at " + "seven " * 20, forwarded_from="Eve"),
        sent(2, "Bob", "Where?"),
        sent(3, "Cid", "Late", reply_to_message_id=1),
        sent(4, "Ann", "At the bus", reply_to_message_id=2),
        sent([], "Ann", "x", reply_to_message_id=[]),
        sent(5, "Ann", "y", reply_to_message_id=77),
        sent(6, "Ann", "z", reply_to_message_id=2, reply_to_peer_id="channel7"),
    ]
    value = {"name": "Club", "type": "private_group", "messages": messages}
    assert exported(value, "result.json").text.split("\n\n")[3:] == [
        "Cid, to Ann “Meet at seven seven seven seven seven seven seven seven sev…” (10:01): Late",
        "Ann, to Bob “Where?” (10:01): At the bus",
        "Ann (10:01): x",
        "Ann (10:01): y",
        "Ann (10:01): z",
    ]


def test_chats_that_one_has_left_are_read_too() -> None:
    export = {"chats": {"list": [TELEGRAM]}, "left_chats": {"list": [TELEGRAM | {"name": "Old team"}]}}
    assert [title for level, title in outline(exported(export, "result.json")) if level == 1] == [
        "Boat club",
        "Old team",
    ]


def test_several_chats_are_a_section_each() -> None:
    document = exported({"chats": {"list": [TELEGRAM, TELEGRAM | {"name": "Ann"}]}}, "result.json")
    assert document.title == "result"
    assert outline(document)[:3] == [(1, "Boat club"), (2, "2024-01-05"), (2, "2024-01-06")]


def node(role: str, text: str, parent: str | None, *, hidden: bool = False) -> dict[str, object]:
    about = {"is_visually_hidden_from_conversation": True} if hidden else {}
    content = {"content_type": "text", "parts": [text]}
    message = {"author": {"role": role}, "content": content, "create_time": 1704448860.1, "metadata": about}
    return {"message": message, "parent": parent, "children": []}


CHATGPT = {
    "title": "Bread",
    "conversation_id": "66-77",
    "current_node": "d",
    "mapping": {
        "r": {"id": "r", "message": None, "parent": None},
        "a": node("user", "Obey me", "r", hidden=True),
        "b": node("user", "How do I bake without yeast?", "a"),
        "c": node("assistant", "An abandoned try", "b"),
        "d": node("assistant", "# Soda\n\nUse soda.\n\n- flour", "b"),
    },
}


def test_a_question_to_an_assistant_heads_the_answer_that_stayed() -> None:
    document = exported([CHATGPT], "conversations.json")
    assert document.title == "Bread"
    assert document.text.startswith("# How do I bake without yeast?\n\nAssistant:\n\n# Soda\n\nUse soda.")
    assert outline(document) == [(1, "How do I bake without yeast?"), (3, "Soda")]
    assert [block.kind for block in document.blocks][-1] == "list"
    assert not any(word in document.text for word in ("abandoned", "Obey", "66-77"))


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("part", ["【1†a ", "\ue200a\ue202", "<a"])
def test_hostile_marks_of_sources_cost_no_more_than_their_length(part: str) -> None:
    answer = node("assistant", part * 50_000, None)
    assert exported([{"title": "A", "current_node": "a", "mapping": {"a": answer}}], "conversations.json")


def test_documents_spoken_words_and_code_of_chatgpt_are_read_and_marks_of_sources_are_not() -> None:
    letter = json.dumps({"name": "Letter", "type": "document", "content": "Dear Sir, the pump leaks."})
    spoken = {"content_type": "audio_transcription", "text": "Write to them"}
    cited = "I did.\ue200cite\ue202turn0search0\ue202turn1news3\ue201 In \ue200entity\ue202"
    cited += '["city","Berlin","capital"]\ue201 too【4†source】.'
    messages = [
        node("user", "", None) | {"parent": "r"},
        node("assistant", "", "a"),
        node("assistant", cited, "b"),
        node("assistant", "", "c"),
    ]
    messages[0]["message"]["content"] = {"content_type": "multimodal_text", "parts": [spoken]}  # type: ignore[index]
    for at, recipient, code in ((1, "canmore.create_textdoc", letter), (3, "python", "print(4711)")):
        message: Any = messages[at]["message"]
        message |= {"recipient": recipient, "content": {"content_type": "code", "text": code}}
    mapping = dict(zip("abcd", messages, strict=True))
    text = exported([{"title": "Pump", "current_node": "d", "mapping": mapping}], "conversations.json").text
    assert text.split("\n\n") == [
        "# Write to them",
        "Assistant:",
        "Letter",
        "Dear Sir, the pump leaks.",
        "Assistant:",
        "I did. In Berlin too.",
        "Assistant:",
        "```python\nprint(4711)\n```",
    ]


def test_what_was_pasted_into_claude_and_what_it_wrote_as_a_document_is_read() -> None:
    pasted = {"file_name": "f.txt", "extracted_content": "# Tides\n\nThe pasted text"}
    artifact = {"type": "tool_use", "name": "artifacts", "input": {"title": "Poem", "content": "High water"}}
    messages = [
        {"sender": "human", "text": "Summarise", "attachments": [pasted]},
        {"sender": "assistant", "text": "Done.", "content": [{"type": "text", "text": "Done."}, artifact]},
    ]
    document = exported([{"name": "Tides", "chat_messages": messages}], "conversations.json")
    assert document.text == (
        "# Summarise\n\nf.txt:\n\n# Tides\n\nThe pasted text\n\nAssistant:\n\nDone.\n\nPoem\n\nHigh water"
    )


def test_conversations_of_claude_are_sections_too() -> None:
    messages = [{"sender": "human", "text": "Why two tides?"}, {"sender": "assistant", "text": "The moon."}]
    value = {"uuid": "1-2", "name": "Tides", "chat_messages": messages}
    document = exported([value, value], "conversations.json")
    assert outline(document)[:2] == [(1, "Tides"), (2, "Why two tides?")]
    assert "1-2" not in document.text


@pytest.mark.parametrize(
    "value",
    [
        [{"type": "message", "text": "no moment"}],
        {"type": "x", "messages": [{"text": "a"}]},
        [{"mapping": [1]}],
        {"chats": [1], "messages": "none"},
        [CHATGPT | {"mapping": {"a": {"message": 5, "parent": "a"}}, "current_node": "a"}],
    ],
)
def test_other_json_stays_what_it_is(value: object) -> None:
    document = exported(value)
    assert {block.kind for block in document.blocks} <= {"table", "code"}


@pytest.mark.parametrize(
    ("begin", "days"),
    [
        ("[12.03.23, 14:{:02}:33]", ["# 2023-03-12"]),
        ("3/12/23, 2:{:02} PM -", []),
        ("3/12/23, 2:{:02} p. m. -", []),
        ("2023-03-12, 14:{:02} -", ["# 2023-03-12"]),
    ],
)
def test_a_chat_of_whatsapp_is_cut_between_messages(begin: str, days: list[str]) -> None:
    lines = [f"{begin.format(at)} Ann: Message {at}. It goes on.\nNext line." for at in range(5)]
    document = parse("\n".join(lines).encode(), "_chat.txt")
    assert texts_of(document) == [*days, *lines]
    assert document.title == "Chat: Ann"
    named = parse("\n".join(lines).encode(), "WhatsApp Chat with Ann.txt")
    assert named.title == "WhatsApp Chat with Ann"
    assert {block.kind for block in parse("\n".join(lines).encode(), "a.log").blocks} == {"code"}


@pytest.mark.parametrize(
    ("dates", "days"),
    [
        (["30/04/2024", "30/04/2024", "01/05/2024"], ["2024-04-30", "2024-05-01"]),
        (["4/30/24", "5/1/24", "5/1/24"], ["2024-04-30", "2024-05-01"]),
        (["2024/04/05", "2024/04/05", "2024/05/06"], ["2024-04-05", "2024-05-06"]),
        (["04.05.24", "04.05.24", "01.06.24"], ["2024-05-04", "2024-06-01"]),
        (["11/03/24", "12/03/24", "01/04/24"], ["2024-03-11", "2024-03-12", "2024-04-01"]),
        (["3/11/24", "3/12/24", "4/1/24"], ["2024-03-11", "2024-03-12", "2024-04-01"]),
        (["05/05/24", "05/05/24", "06/06/24"], ["2024-05-05", "2024-06-06"]),
        (["03/04/24", "03/04/24", "03/04/24"], []),
        (["03/04/24", "04/04/24", "05/04/24"], []),
        (["13/14/24", "03/04/24", "03/04/24"], []),
        (["03/30/24", "30/03/24", "03/04/24"], []),
    ],
)
def test_days_of_whatsapp_are_sections_if_the_file_tells_which_number_is_the_month(
    dates: list[str], days: list[str]
) -> None:
    text = "\n".join(f"{date}, 20:15 - Ann: Hello" for date in dates)
    document = parse(text.encode(), "_chat.txt")
    assert [heading.title for heading in document.outline] == days
    assert document.text.count("Ann: Hello") == len(dates)
    assert (document.date and document.date.date().isoformat()) == (days[-1] if days else None)


@pytest.mark.parametrize(
    "line",
    [
        "[12/3/24, 8:15:02\u202fp.\u00a0m.] Ana: Hola",
        "12/3/24, 8:15 p. m. - Ana: Hola",
        "[2024. 3. 12. 오후 8:15:02] 민수: 네",
        "[2024/3/12 下午8:15:02] 王: 好",
    ],
)
def test_a_chat_is_recognized_however_a_phone_writes_the_half_of_the_day(line: str) -> None:
    assert parse("\n".join([line] * 3).encode(), "_chat.txt").title.startswith("Chat: ")


@pytest.mark.parametrize(
    "begin",
    [
        "14.3.2026 klo 18.20 -",
        "[14.3.2026 klo 18.20.11]",
        "14.03.2026 18.20 -",
        "14.03.2026 kl. 18.20 -",
        "2026-03-14 kl. 18:20 -",
        "14/03/2026 à 18:20 -",
        "2026-03-14 18 h 20 -",
        "14.03.26 um 18:20 Uhr -",
        "14/03/2026 18:20 -",
        "14/03/26 18.20 -",
        "14.03.26 г., 18:20 ч. -",
        "14/3/2026، 6:20 م -",
    ],
)
def test_two_messages_are_a_chat_with_a_day_however_a_phone_writes_the_moment(begin: str) -> None:
    lines = [f"{begin} Ann: Hello", f"{begin} Bob: Hi"]
    document = parse("\n".join(lines).encode(), "WhatsApp Chat.txt")
    assert texts_of(document) == ["# 2026-03-14", *lines]


def test_a_text_with_a_few_moments_is_no_chat() -> None:
    text = "\n".join(["12.03.23, 14:05 - Ann: Hello"] * 3 + ["line"] * 20)
    assert len(parse(text.encode(), "a.txt").blocks) == 1


EVERNOTE = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE en-export SYSTEM "http://xml.evernote.com/pub/evernote-export4.dtd">
<en-export><note><title>Boiler</title><created>20240301T080000Z</created><tag>house</tag>
<note-attributes><author>Ann</author><source-url>https://ex.com/b</source-url></note-attributes>
<content><![CDATA[<?xml version="1.0"?><!DOCTYPE en-note SYSTEM "x"><en-note>
<div>Bleed the radiators.</div>
<div><en-todo checked="true"/>valve ordered</div>
<div><en-todo checked="false"/>valve fitted</div></en-note>]]>
</content><resource><data encoding="base64">iVBORw0KGgo=</data></resource></note>
<note><title>Roof</title><content><![CDATA[<en-note>Slates.</en-note>]]></content></note></en-export>"""


def test_notes_of_evernote_are_sections_with_what_is_ticked() -> None:
    document = parse(EVERNOTE.encode(), "notes.enex")
    assert outline(document) == [(2, "Boiler"), (2, "Roof")]
    assert document.text.split("\n\n")[1:5] == [
        "2024-03-01 · Ann, #house · https://ex.com/b",
        "Bleed the radiators.",
        "[x] valve ordered",
        "[ ] valve fitted",
    ]
    assert document.metadata["left_out"] == "1 attachment"
    assert "iVBOR" not in document.text


def test_ticks_and_tasks_of_newer_evernote_are_read_and_what_is_encrypted_is_said() -> None:
    items = "".join(
        f'<li style="--en-checked:{state};"><div>{text}</div></li>'
        for state, text in (("true", "mileage sent"), ("false", "discount asked"))
    )
    text = f"""<en-export><note><title>Car</title>
<content><![CDATA[<en-note><ul style="--en-todo:true;">{items}</ul>
<div>PIN: <en-crypt cipher="AES">RU5DMG==</en-crypt></div></en-note>]]></content>
<task><title>Cancel it</title><taskStatus>open</taskStatus><dueDate>20241130T000000Z</dueDate></task>
<task><title>Sign it</title><taskStatus>completed</taskStatus></task></note></en-export>"""
    assert parse(text.encode(), "a.enex").text.split("\n\n")[1:] == [
        "- [x] mileage sent",
        "- [ ] discount asked",
        "PIN: (encrypted)",
        "- [ ] Cancel it (due 2024-11-30)\n- [x] Sign it",
    ]


KEEP: dict[str, Any] = {
    "isTrashed": False,
    "title": "Packing",
    "textContent": "Ring twice.",
    "textContentHtml": "<p>Ring twice.</p>",
    "userEditedTimestampUsec": 1710230400000000,
    "labels": [{"name": "travel"}],
    "listContent": [{"text": "Passport", "isChecked": True}, {"text": "Goggles", "isChecked": False}],
    "annotations": [{"title": "Map", "url": "https://maps.example"}],
}


def test_a_note_of_keep_is_read_once_with_its_ticks_and_none_from_the_trash() -> None:
    note = exported(KEEP)
    assert (note.title, note.date) == ("Packing", datetime(2024, 3, 12, 8, tzinfo=UTC))
    listed = "- [x] Passport\n- [ ] Goggles"
    assert note.text == f"#travel\n\nRing twice.\n\n{listed}\n\nMap https://maps.example"
    with pytest.raises(EmptyFileError):
        exported(KEEP | {"isTrashed": True})


def test_a_canvas_of_obsidian_is_its_cards_and_what_its_arrows_say() -> None:
    cards = [
        {"id": "a", "type": "text", "text": "# Roof\nPays back.%%never%%", "x": 0, "y": 0},
        {"id": "b", "type": "file", "file": "Vendors.md", "x": 0, "y": 9},
        {"id": "c", "type": "link", "url": "https://pump.example", "x": 0, "y": 9},
        {"id": "d", "type": "group", "label": "Ideas", "x": 0, "y": 9},
    ]
    arrows = [{"fromNode": "a", "toNode": "d", "label": "is one of"}, {"fromNode": "a", "toNode": "b"}]
    canvas = json.dumps({"nodes": cards, "edges": arrows}).encode()
    assert parse(canvas, "Map.canvas").text.split("\n\n") == [
        "# Roof\nPays back.",
        "[[Vendors.md]]",
        "https://pump.example",
        "Ideas",
        "Roof → is one of → Ideas",
    ]


@pytest.mark.parametrize("text", ["[]", "{}\n", "null", '""'])
def test_json_without_a_value_is_empty(text: str) -> None:
    with pytest.raises(EmptyFileError):
        parse(text.encode(), "integration_logs.json")


ID = "1a2b3c4d5e6f708192a3b4c5d6e7f809"


@pytest.mark.parametrize("name", [f"Rules {ID}.md", f"Rules {ID}.html"])
def test_ids_of_notion_are_in_no_title_and_no_link(name: str) -> None:
    link = f"Rules%20{ID}/Visa%20{ID}"
    is_page = name.endswith("html")
    text = f'<p><a href="{link}.html">Visa</a></p>' if is_page else f"See [Visa]({link}.md), and {ID}."
    document = parse(text.encode(), name)
    assert document.title == "Rules"
    assert f"[Visa](Rules/Visa.{'html' if is_page else 'md'})" in document.text
    assert (ID in document.text) is not is_page  # what is no link stays
    assert parse(b"name,age\nAnn,3\n", f"Tasks {ID}_all.csv").title == "Tasks"


# Jupyter notebooks: texts, code and outputs that are text.


def book(*cells: dict[str, object], **metadata: object) -> Document:
    return parse(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4}).encode(), "a.ipynb")


def code(source: object, *outputs: dict[str, object]) -> dict[str, object]:
    return {"cell_type": "code", "source": source, "outputs": outputs}


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("part", ["![a ", "![](data:", "<img ", '<img src="data:', '<img src="data:">'])
def test_hostile_pictures_cost_no_more_than_their_length(part: str) -> None:
    assert book({"cell_type": "markdown", "source": f"x {part * 20_000}"})


def test_cells_are_read_in_order() -> None:
    document = book(
        {"cell_type": "markdown", "source": ["# Clocks\n", "They tick. ![x](data:image/png;base64,AAAA)"]},
        code(
            ["a = 1\n", "a"],
            {"output_type": "execute_result", "data": {"text/plain": ["1"], "image/png": "AAAA"}},
        ),
        kernelspec={"language": "python"},
        authors=[{"name": "Ann"}],
    )
    assert document.title == "Clocks"
    assert document.mime_type == "application/x-ipynb+json"
    assert document.metadata == {"author": "Ann"}
    assert document.text == "# Clocks\nThey tick. x\n\n```python\na = 1\na\n```\n\n```\n1\n```"
    assert [block.kind for block in document.blocks] == ["heading", "paragraph", "code", "code"]


def test_an_output_is_what_a_reader_sees_of_it() -> None:
    table = {"text/html": "<table><tr><th>a<th>b<tr><td>1<td>2</table>", "text/plain": "a b\n1 2"}
    outputs: list[dict[str, object]] = [
        {"output_type": "display_data", "data": table},
        {"output_type": "error", "ename": "KeyError", "evalue": "x", "traceback": ["\x1b[31m" * 99]},
        {"output_type": "stream", "text": ["\x1b[1mbold\x1b[0m ```\n"]},
        {"output_type": "stream", "text": "y" * 9000},
        {"output_type": "display_data", "data": {"image/png": "AAAA"}},
    ]
    text = book(code("x", *outputs)).text
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |" in text
    assert "```\nKeyError: x\n```" in text
    assert "\nbold ```\n" in text
    assert "(5,000 more characters)" in text
    assert "AAAA" not in text


def test_a_notebook_of_format_3_is_read() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Clocks"},
        {"cell_type": "code", "input": "a = 1"},
    ]
    document = parse(json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}).encode(), "a.ipynb")
    assert document.text == "## Clocks\n\n```\na = 1\n```"


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"cells": 1}', b"{}", b'{"cells": ' + b"[" * 100_000])
def test_what_is_no_notebook_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="notebook"):
        parse(data, "a.ipynb")


def test_a_notebook_without_text_is_empty() -> None:
    with pytest.raises(EmptyFileError):
        book(code(""), {"cell_type": "markdown", "source": []}, {})


def test_a_real_notebook_has_its_title_and_headings(judged: Path) -> None:
    document = parse((judged / "office/markitdown/test_notebook.ipynb").read_bytes(), "test_notebook.ipynb")
    assert document.title == "Test Notebook Title"
    assert [block.title for block in document.blocks if block.title] == ["Test Notebook", "Code Cell Below"]


SEGMENTS = (
    ("start", "text", "speaker", 0.0, 761.4),
    ("start", "transcript", "speaker", 0, 761),
    ("start_time", "transcript", "speaker_label", "0.0", "761.46"),
)


@pytest.mark.parametrize(("start", "text", "speaker", "first", "second"), SEGMENTS)
def test_a_transcript_is_read_as_its_subtitles_are(
    start: str, text: str, speaker: str, first: object, second: object
) -> None:
    spoken = [
        {start: first, text: " Is it <safe>?", speaker: "Ann", "tokens": [440, 2275]},
        {start: second, text: " No comment.", speaker: "Bob", "words": [{"word": "No", "score": 0.9}]},
    ]
    expected = "00:00:00\n\nAnn: Is it <safe>?\n\n00:12:41\n\nBob: No comment."
    for keys in (["segments"], ["results", "utterances"], ["results", "audio_segments"]):
        value: object = spoken
        for key in reversed(keys):
            value = {key: value}
        assert exported(value).text == expected
    numbered = [segment | {speaker: at} for at, segment in enumerate(spoken)]  # as Deepgram does
    document = exported({"title": "Review", "segments": numbered})
    assert (document.title, document.text) == (
        "Review",
        expected.replace("Ann", "Speaker 0").replace("Bob", "Speaker 1"),
    )
    without_times = [{text: "Is it safe?"}, {start: second, text: "No comment."}]
    assert "00:12:41" not in exported({"segments": without_times}).text
    marked = {"text": "Ann Lee moved to Berlin in 1999.", "segments": [{start: 17, text: "Berlin"}]}
    assert "Ann Lee moved" in exported(marked).text

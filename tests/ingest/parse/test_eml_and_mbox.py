"""Mails, and mailboxes of them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.corpus import Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.parsers import members, parse

# Mails as they arrive: their text, people and dates, and what is attached.

HEADERS = "From: Ann <ann@x.org>\nSubject: Clocks\nDate: Wed, 01 May 2024 10:00:00 +0200\n"


def parsed(mail: str | bytes) -> Document:
    return parse(mail if isinstance(mail, bytes) else mail.encode(), "a.eml")


def body(mail: str | bytes) -> str:
    return parsed(mail).text.partition("\n\n")[2]


def attached(*parts: tuple[bytes, str, str]) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["Subject"], mail["Date"] = (
        "Ann <ann@x.org>",
        "Clocks",
        "Wed, 01 May 2024 08:00:00 +0000",
    )
    mail.set_content("See below.")
    for data, kind, name in parts:
        mail.add_attachment(data, *kind.split("/"), filename=name)
    return mail


def test_a_mail_has_its_subject_people_and_date() -> None:
    document = parsed(
        HEADERS + "To: Bo <bo@x.org>, cy@x.org\nCc: Di <di@x.org>\nKeywords: time, oil\n\nTick.\n"
    )
    assert document.title == "Clocks"
    assert document.date
    assert document.date.isoformat() == "2024-05-01T08:00:00+00:00"
    assert document.mime_type == "message/rfc822"
    assert document.metadata == {
        "author": "Ann",
        "from": "Ann <ann@x.org>",
        "to": "Bo <bo@x.org>, cy@x.org",
        "cc": "Di <di@x.org>",
        "keywords": "time, oil",
    }
    assert document.text == (
        "From: Ann <ann@x.org>\nTo: Bo <bo@x.org>, cy@x.org\nCc: Di <di@x.org>\n"
        "Date: 2024-05-01 10:00 +0200\n\nTick."
    )


def test_a_mail_is_dated_as_its_sender_saw_it_and_sorted_in_utc() -> None:
    mail = "From: a@x.org\nSubject: S\nDate: Mon, 4 Mar 2024 23:30:00 -0500\n\nTick.\n"
    document = parsed(mail)
    assert "Date: 2024-03-04 23:30 -0500" in document.text
    assert document.date
    assert document.date.isoformat() == "2024-03-05T04:30:00+00:00"
    mailbox = parse(f"From a@x.org Mon Mar  4 23:30:00 2024\n{mail}".encode(), "a.mbox").text
    assert "2024-03-04" in mailbox
    assert "UTC" in parsed(mail.replace("-0500", "+0000")).text


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_addresses_and_file_names_may_be_written_without_an_encoding(encoding: str) -> None:
    mail = (
        'From: "Jöhn" <jöhn@bücher.example>\nTo: =?utf-8?q?Zo=C3=AB?= <zoë@käse.example>\nSubject: S\n'
        "Content-Type: application/pdf\nContent-Disposition: attachment; filename=Käse.pdf\n\nabc"
    ).encode(encoding)
    document = parsed(mail)
    assert document.metadata["from"] == "Jöhn <jöhn@bücher.example>"
    assert document.metadata["to"] == "Zoë <zoë@käse.example>"
    assert [member.name for member in members(mail, "a.eml")] == ["Käse.pdf"]


def test_a_secret_recipient_is_not_told() -> None:
    assert "@y.org" not in repr(parsed(HEADERS + "Bcc: eve@y.org\n\nTick.\n"))


@pytest.mark.parametrize(
    ("charset", "encoding", "written"),
    [
        ("utf-8", "utf-8", "Käse für Zoë"),
        ("us-ascii", "utf-8", "Käse für Zoë"),
        ("iso-8859-1", "cp1252", "„Käse“ für 5 €"),
        ("iso-8859-1", "utf-8", "Käse für Zoë"),
        ("windows-1251", "cp1251", "Часы идут"),
        ("iso-2022-jp", "iso-2022-jp", "時計が動く"),
        ("gb2312", "gb2312", "时钟在走"),
        ("x-unknown", "cp1252", "Käse für Zoë"),
        ("", "utf-8", "Käse für Zoë"),
        ("windows-1252", "cp1252", "„Käse“"),
    ],
)
def test_a_text_is_read_whatever_its_charset_is_called(charset: str, encoding: str, written: str) -> None:
    kind = f'Content-Type: text/plain; charset="{charset}"\n' if charset else ""
    assert body((HEADERS + kind + "\n").encode() + written.encode(encoding)) == written


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("above", ["", "\n"])
def test_a_mail_is_read_however_its_file_was_saved(encoding: str, end: str, above: str) -> None:
    mail = (above + HEADERS + "\nTick tock.\n").replace("\n", end)
    assert parsed(mail.encode(encoding)).text.endswith("Tick tock.")


@pytest.mark.parametrize(
    ("header", "title"),
    [
        ("=?utf-8?q?K=C3=A4se?=", "Käse"),
        ("=?utf-8?b?S8Okc2U=?= =?utf-8?q?_f=C3=BCr?=", "Käse für"),
        ("=?iso-8859-1?q?K=E4se?=", "Käse"),
        ("Käse", "Käse"),
        ("=?utf-8?b?broken", "=?utf-8?b?broken"),
        ("two\n lines", "two lines"),
        ("hid\u200bden", "hidden"),
        ("", "a"),
    ],
)
def test_a_subject_is_read_as_it_is_written(header: str, title: str) -> None:
    assert parsed(f"From: a@x.org\nSubject: {header}\n\nTick.\n").title == title


@pytest.mark.parametrize(
    ("headers", "day"),
    [
        ("Date: 2024-05-01T08:00:00Z", "2024-05-01"),
        ("Date: yesterday", None),
        ("Date: yesterday\nReceived: from a by b; Thu, 2 May 2024 08:00:00 +0000", "2024-05-02"),
        ("Subject: x", None),
    ],
)
def test_a_mail_without_a_date_has_that_of_its_first_server_if_any(headers: str, day: str | None) -> None:
    date = parsed(f"From: a@x.org\n{headers}\n\nTick.\n").date
    assert (date.date().isoformat() if date else None) == day


def test_of_alternatives_the_plain_text_is_read_unless_it_says_much_less() -> None:
    mail = EmailMessage()
    mail["From"] = "a@x.org"
    mail.set_content("The pendulum swings slowly.")
    mail.add_alternative("<p>The <b>pendulum</b> swings.</p>", subtype="html")
    assert body(mail.as_bytes()) == "The pendulum swings slowly."
    poor = EmailMessage()
    poor["From"] = "a@x.org"
    poor.set_content("HTML only.")
    poor.add_alternative(
        "<style>p {}</style><h2>Clocks</h2><p>The pendulum swings slowly.</p>", subtype="html"
    )
    assert body(poor.as_bytes()) == "## Clocks\n\nThe pendulum swings slowly."
    assert [block.title for block in parsed(poor.as_bytes()).blocks if block.kind == "heading"] == ["Clocks"]


def test_tables_that_lay_a_mail_out_are_not_read_as_tables() -> None:
    rows = "".join(f"<tr><td>oil {n}</td><td>{n} €</td></tr>" for n in (1, 2))
    html = f"<table><tr><td><p>Hello,</p><table>{rows}</table></td></tr><tr><td>Bye.</td></tr></table>"
    assert body(f"{HEADERS}Content-Type: text/html; charset=utf-8\n\n{html}").split("\n\n") == [
        "Hello,",
        "| oil 1 | 1 € |\n| --- | --- |\n| oil 2 | 2 € |",
        "Bye.",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "On Wed, 1 May 2024 at 10:00, Bo <bo@x.org> wrote:",
        "Am 01.05.2024 um 10:00 schrieb Bo:",
        "Den ons. 13. mar. 2024 kl. 09.41 skrev Bo <bo@x.org>:",
        "Bo <bo@x.org> kirjoitti 13.3.2024 kello 9.41:",
        "Op 13 mrt 2024 om 09:41 heeft Bo <bo@x.org> het volgende geschreven:",
        "Em qua., 13 de mar. de 2024 às 09:41, Bo <bo@x.org> escreveu:",
        "De : Bo\nEnvoyé : mercredi 13 mars 2024 09:41",
        "Från: Bo\nSkickat: den 13 mars 2024 09:41",
        "Da: Bo\nInviato: mercoledì 13 marzo 2024 09:41",
        "-----Original Message-----",
        "From: Bo <bo@x.org>\nSent: Wednesday",
    ],
)
def test_what_a_mail_answers_is_a_section_of_its_own(line: str) -> None:
    document = parsed(f"{HEADERS}\nNo, it does not.\n\n{line}\n> Does it tick?\n")
    [heading] = [block for block in document.blocks if block.kind == "heading"]
    assert document.text[heading.start : heading.end] == line.partition("\n")[0]
    assert document.text.index("No, it") < heading.start < document.text.index("Does it tick")


def test_the_line_above_a_quoted_mail_may_be_wrapped() -> None:
    line = "Am Mi., 13. März 2024 um 09:41 Uhr schrieb Bo Muster <\nbo@x.org>:"
    document = parsed(f"{HEADERS}\nNo, it does not.\n\n{line}\n> Does it tick?\n")
    [heading] = [block for block in document.blocks if block.kind == "heading"]
    assert document.text[heading.start : heading.end] == line


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("Let us meet on 3.3.2024 at 10:10.\nAs the committee wrote:\nx", []),
        ("On 13.3.2024 at 9:41 a.m.\nBo wrote:\n> x", ["On 13.3.2024 at 9:41 a.m. Bo wrote:"]),
        ("On 13.3.2024 at 9:41 John F.\nDoe wrote:\n> x", ["On 13.3.2024 at 9:41 John F. Doe wrote:"]),
        ("On 3.3.2024 Bo wrote:\nand then he wrote:\nx", ["On 3.3.2024 Bo wrote:"]),
        ("Da: Bo wrote on 3.3.2024:\nA: Ann\n\nx", ["Da: Bo wrote on 3.3.2024:"]),
    ],
)
def test_a_line_above_a_quoted_mail_begins_one_section(text: str, headings: list[str]) -> None:
    assert [
        block.title for block in parsed(f"{HEADERS}\n{text}\n").blocks if block.kind == "heading"
    ] == headings


ADDRESS = '<a href="mailto:{0}@x.org">{0}@x.org</a>'


@pytest.mark.parametrize(
    ("line", "title"),
    [
        (
            f"On Mon, Mar 4, 2024 at 5:00 PM Bo &lt;{ADDRESS.format('b_o_x')}&gt; wrote:",
            "On Mon, Mar 4, 2024 at 5:00 PM Bo <b_o_x@x.org> wrote:",
        ),
        (f"<b>From:</b> Bo &lt;{ADDRESS.format('bo')}&gt;<br><b>Sent:</b> Monday", "From: Bo <bo@x.org>"),
        (
            'On Mon, Mar 4, 2024, <a href="https://x.org/u/1">Bo</a> wrote:',
            "On Mon, Mar 4, 2024, Bo wrote:",
        ),
        ("From: Bo [mailto:bo@x.org]<br>Sent: Monday", "From: Bo <bo@x.org>"),
        (
            "On 4 Mar 2024, Bo &lt;bo@x.org&lt;mailto:bo@x.org&gt;&gt; wrote:",
            "On 4 Mar 2024, Bo <bo@x.org> wrote:",
        ),
    ],
)
def test_the_heading_of_what_a_mail_answers_has_no_markup(line: str, title: str) -> None:
    html = f"<p>No.</p><div>{line}</div><blockquote>Does it tick?</blockquote>"
    document = parsed(f"{HEADERS}Content-Type: text/html; charset=utf-8\n\n{html}")
    assert [block.title for block in document.blocks if block.kind == "heading"] == [title]


def test_a_link_to_an_address_is_that_address_unless_it_has_words_of_its_own() -> None:
    links = (
        '<a href="mailto:Bo@x.org?subject=a%20b">bo@x.org</a>, <a href="mailto:bo@x.org">Bo</a>, '
        '<a href="mailto:cy@x.org">bo@x.org</a>'
    )
    assert body(f"{HEADERS}Content-Type: text/html\n\n<p>Ask {links}.</p>") == (
        "Ask bo@x.org, [Bo](mailto:bo@x.org), [bo@x.org](mailto:cy@x.org)."
    )


def test_what_is_attached_are_documents_of_their_own() -> None:
    inner = EmailMessage()
    inner["From"], inner["Subject"] = "Cy <cy@x.org>", "v1.0/draft"
    inner.set_content("Inner.")
    mail = attached((b"%PDF", "application/pdf", "../../etc/r.pdf"), (b"two", "text/plain", "r.pdf"))
    mail.add_attachment(inner)
    files = [*members(mail.as_bytes(), "a.eml")]
    assert [(file.name, dict(file.stated)) for file in files] == [
        ("etc r.pdf", {"from": "Ann <ann@x.org>", "date": "2024-05-01T08:00:00+00:00"}),
        ("r.pdf", {"from": "Ann <ann@x.org>", "date": "2024-05-01T08:00:00+00:00"}),
        ("v1.0 draft.eml", {}),
    ]
    assert files[0].data == b"%PDF"
    assert parse(files[2].data, files[2].name).title == "v1.0/draft"
    document = parsed(mail.as_bytes())
    assert "Attachments: etc r.pdf (4 bytes), r.pdf (3 bytes), v1.0 draft.eml (" in document.text
    assert "Inner." not in document.text


def test_files_of_the_same_name_get_numbers() -> None:
    mail = attached(*[(b"x", "text/plain", "a.txt")] * 3)
    assert [member.name for member in members(mail.as_bytes(), "a.eml")] == [
        "a.txt",
        "a (2).txt",
        "a (3).txt",
    ]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("application/json", "part.json"), ("text/markdown", "part.md"), ("application/x-odd", "part")],
)
def test_a_file_without_a_name_is_called_by_its_type(kind: str, name: str) -> None:
    mail = attached((b"x", kind, ""))
    assert [member.name for member in members(mail.as_bytes(), "a.eml")] == [name]


def test_hundreds_of_attachments_may_have_one_name_without_counting_anew_for_each(
    lines_run: Callable[[Callable[[], object]], int],
) -> None:
    part = "--b\nContent-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\nx\n"

    def lines(number: int) -> int:
        mail = f"{HEADERS}Content-Type: multipart/mixed; boundary=b\n\n{part * number}--b--\n".encode()
        names: list[str] = []
        run = lines_run(lambda: names.extend(member.name for member in members(mail, "a.eml")))
        assert names[-1] == f"a ({number}).txt"
        return run

    assert lines(400) < 3 * lines(200)


def test_signatures_empty_files_and_pictures_that_the_text_shows_are_left_out() -> None:
    mail = attached((b"x", "application/pgp-signature", "s.asc"), (b"", "text/plain", "empty.txt"))
    mail.add_attachment(b"png", "image", "png", filename="logo.png", cid="<logo>")
    mail.add_attachment(b"png", "image", "png", filename="photo.png")
    assert [member.name for member in members(mail.as_bytes(), "a.eml")] == ["photo.png"]


def wrapped(*attributes: tuple[int, bytes]) -> bytes:
    """A winmail.dat with these attributes."""
    parts = [struct.pack("<BII", 2, id_, len(data)) + data + b"\0\0" for id_, data in attributes]
    return struct.pack("<IH", 0x223E9F78, 1) + b"".join(parts)


def test_the_files_in_a_winmail_dat_are_attached() -> None:
    begin, title, data = 0x69002, 0x18010, 0x6800F
    first = [(begin, b"x"), (title, b"a.txt\0"), (data, b"one")]
    two = [(begin, b"x"), (title, b"..\\b.pdf\0"), (data, b"%PDF")]
    mail = attached((wrapped(*first, *two), "application/ms-tnef", "winmail.dat"))
    files = [(file.name, file.data) for file in members(mail.as_bytes(), "a.eml")]
    assert files == [("a.txt", b"one"), ("b.pdf", b"%PDF")]
    for broken in (wrapped(*first)[:-4], wrapped((0x9003, b"x")), b"", b"no winmail", wrapped(*first)[:20]):
        mail = attached((broken, "application/ms-tnef", "winmail.dat"))
        names = [file.name for file in members(mail.as_bytes(), "a.eml")]
        assert names in ([], ["a.txt"])


def test_an_encrypted_mail_tells_what_its_headers_tell() -> None:
    mail = HEADERS + "Content-Type: application/pkcs7-mime; smime-type=enveloped-data\n\nMIAG\n"
    document = parsed(mail)
    assert (document.title, document.remarks) == (
        "Clocks",
        ("it is encrypted, so only its headers were read",),
    )
    assert "MIAG" not in document.text
    assert [*members(mail.encode(), "a.eml")] == []


def test_an_invitation_is_read() -> None:
    event = "BEGIN:VEVENT\nSUMMARY:Winding\nDTSTART:20240501T080000Z\nLOCATION:Tower\nEND:VEVENT\n"
    mail = EmailMessage()
    mail["From"] = "a@x.org"
    mail.set_content("Please come.")
    mail.add_alternative(event, subtype="calendar")
    assert body(mail.as_bytes()) == (
        "Please come.\n\nEvent: Winding\nStart: 2024-05-01 08:00 UTC\nLocation: Tower"
    )


def test_lines_that_flow_are_joined() -> None:
    kind = "Content-Type: text/plain; format=flowed\n"
    assert body(f"{HEADERS}{kind}\nThe pendulum \nswings.\nNew line.\n-- \nAnn\n") == (
        "The pendulum swings.\nNew line.\n-- \nAnn"
    )


@pytest.mark.parametrize("quotation", ["> Can we ship \n> on Friday? ", ">> Is it late? ", " > On Friday? "])
def test_an_answer_stands_apart_from_the_quotation_above_it(quotation: str) -> None:
    kind = "Content-Type: text/plain; format=flowed\n"
    text = body(f"{HEADERS}{kind}\nAnn wrote: \n{quotation}\nNo, on \nMonday. \n{quotation}\n")
    assert "\nNo, on Monday." in text.split("?")[1]


def test_a_truncated_mail_is_read_as_far_as_it_goes() -> None:
    whole = attached((b"x" * 5000, "application/pdf", "a.pdf")).as_bytes()
    for end in (len(whole) // 2, 400, 250):
        assert parsed(whole[:end]).title == "Clocks"


@pytest.mark.parametrize("data", [b"\x00\x01\x02\x03", b"Just some text.\n", b"PK\x03\x04" + b"x" * 50])
def test_what_is_no_mail_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="not a mail"):
        parsed(data)


@pytest.mark.parametrize("data", [b"From: a@x.org\n\n", b"  \n\n ", b"\r\n"])
def test_a_mail_without_anything_is_empty(data: bytes) -> None:
    with pytest.raises(EmptyFileError):
        parsed(data)


def test_a_million_recipients_take_no_time() -> None:
    document = parsed(f"From: a@x.org\nTo: {'Bo <bo@x.org>, ' * 100_000}\n\nTick.\n")
    assert document.metadata["to"] == "Bo <bo@x.org>"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_mail_or_a_parse_error(data: bytes) -> None:
    for mail in (data, b"From: a@x.org\n" + data):
        try:
            parsed(mail)
            assert all(member.name and "/" not in member.name for member in members(mail, "a.eml"))
        except ParseError as error:
            assert str(error)  # noqa: PT017 either end is fine


def test_a_web_page_that_a_browser_saved_is_that_page() -> None:
    page = base64.b64encode(b"<html><title>T</title><main><p>The pendulum swings.</p></main>").decode()
    saved = (
        "From: <Saved by Blink>\nSnapshot-Content-Location: https://example.org/clocks\nSubject: Clocks\n"
        'Content-Type: multipart/related; boundary="b"\n\n--b\nContent-Type: text/html\n'
        f"Content-Transfer-Encoding: base64\n\n{page}\n--b\nContent-Type: text/css\n\np {{}}\n--b--\n"
    )
    document = parse(saved.encode(), "a.mhtml")
    assert (document.title, document.text, document.url) == (
        "Clocks",
        "The pendulum swings.",
        "https://example.org/clocks",
    )


SAMPLES = {
    "email-equals-attachment-filename": ("Odd filename example", "2023-08-13", ["odd=file=name.txt"]),
    "email-no-utf8-2008-07-16.062410": ("RE: שלום", "2008-07-16", []),
    "email-replace-mime-encodings-error-5": (
        "GLOBAL SPONSORSHIP OPPORTUNITY - BIOPROCESSING SUMMIT",
        "2022-03-01",
        [],
    ),
    "email-with-image": ("email-with-image", "2023-01-04", []),
    "fake-email-attachment": ("Fake email with attachment", "2022-12-23", ["fake-attachment.txt"]),
    "fake-email-b64": ("Test Email", "2022-12-16", []),
    "fake-email-utf-16-be": ("Test Email", "2022-12-16", []),
    "fake-encrypted": ("fake encrypted", None, []),
    "family-day": ("Family Day", "2022-12-21", []),
    "mime-attach-mp3": ("Email with MP3 Attachment", None, ["sample-3s.mp3"]),
    "mime-html-only": ("Example HTML Only MIME Email", "2024-10-01", []),
    "mime-multipart-digest": (
        "Example Multipart Digest Email",
        None,
        ["First Message.eml", "Second Message.eml", "Third Message.eml"],
    ),
    "mime-no-subject": ("mime no subject", None, []),
    "mime-word-encoded-subject": ("Simple email with ☸☿ Unicode subject", None, []),
    "test-iso-8601-date": ("Test a Z-suffix date", "2025-07-29", []),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_real_mails_have_the_title_date_and_files_that_a_person_sees(judged: Path, name: str) -> None:
    data = (judged / "office" / "unstructured" / "eml" / f"{name}.eml").read_bytes()
    document = parse(data, f"{name}.eml")
    date = document.date.date().isoformat() if document.date else None
    names = [member.name for member in members(data, f"{name}.eml")]
    assert (document.title, date, names) == SAMPLES[name]


def test_a_name_in_a_winmail_dat_is_in_the_code_page_that_it_states() -> None:
    begin, title, data, codepage = 0x69002, 0x18010, 0x6800F, 0x69007
    name = "Ок.txt"  # too short to tell by its bytes
    stated = (codepage, struct.pack("<II", 1251, 0))
    file = [(begin, b"x"), (title, name.encode("cp1251") + b"\0"), (data, b"one")]
    mail = attached((wrapped(stated, *file), "application/ms-tnef", "winmail.dat"))
    assert [member.name for member in members(mail.as_bytes(), "a.eml")] == [name]


# Mailboxes: a list of their messages, and each message.

BOX = (
    b"From ann@x.org Wed May  1 10:00:00 2024\nFrom: Ann <ann@x.org>\nSubject: One\nMessage-ID: <1@x/y>\n"
    b"Date: Wed, 01 May 2024 10:00:00 +0000\n\nFrom the start, it ticks.\n>From here on, too.\n>>From it.\n\n"
    b"From bo@x.org Thu May  2 10:00:00 2024\r\nFrom: bo@x.org\r\nSubject: Two\r\n\r\nTock.\r\n\r\n"
    b"From - Thu May  2 11:00:00 2024\nMessage-ID: <1@x/y>\n\nAgain.\n"
)


def test_a_mailbox_lists_its_messages() -> None:
    document = parse(BOX, "team.mbox")
    assert document.title == "team"
    assert document.text == (
        "subject: One\nfrom: Ann <ann@x.org>\ndate: 2024-05-01\n\nsubject: Two\nfrom: bo@x.org"
    )


def test_each_message_is_a_member_whose_name_stays_when_others_are_deleted() -> None:
    mails = [*members(BOX, "team.mbox")]
    assert [mail.name for mail in mails][::2] == ["1@x y.eml", "1@x y (2).eml"]
    assert [parse(mail.data, mail.name).title for mail in mails] == ["One", "Two", "1@x y (2)"]
    assert parse(mails[0].data, "a.eml").text.endswith(
        "From the start, it ticks.\nFrom here on, too.\n>From it."
    )
    assert not any(mail.data.endswith((b"\n\n", b"\n\r\n")) for mail in mails)  # that is the next one's
    assert next(iter(members(BOX[BOX.index(b"From bo") :], "team.mbox"))) == mails[1]


@pytest.mark.parametrize("data", [b"Just text.\n", b"\x00" * 50, b"From: a@x.org\n\nA mail.\n"])
def test_what_is_no_mailbox_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="not a mailbox"):
        parse(data, "a.mbox")


DATED = "From ann@x.org Mon Jan  1 10:00:00 2024\n"
SECOND = "From bo@x.org Tue Jan  2 10:00:00 2024\n"


@pytest.mark.parametrize(
    "box",
    [
        f"{DATED}\nOne.\n\n{SECOND}\nTwo.\n",  # no headers at all
        f"{DATED}X-Status: R\n\nOne.\n\n{SECOND}X-Status: R\n\nTwo.\n",
        f"{DATED}Subject: a\n\nOne.\n{SECOND}Subject: b\n\nTwo.\n",  # no empty line between them
        "From ann@x.org\nSubject: a\n\nOne.\n\nFrom bo@x.org\nSubject: b\n\nTwo.\n",
        "From ann@x.org Mon Jan  1 2024\nSubject: a\n\nOne.\n\nFrom bo@x.org 2024\nSubject: b\n\nTwo.\n",
        f"\ufeff{DATED}Subject: a\n\nOne.\n\n{SECOND}Subject: b\n\nTwo.\n",
        f"\n\n{DATED}Subject: a\n\nOne.\n\n{SECOND}Subject: b\n\nTwo.\n",
        f"{DATED}Subject: a\n\nOne.\nFrom then on, 10:30 it was:\n\nFrom Rome\nat 5.\n\n{SECOND}\nTwo.\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_list_of_a_mailbox_and_its_messages_agree(box: str, end: str) -> None:
    data = box.replace("\n", end).encode()
    rows = parse(data, "simple.mbox").text.split("\n\n")
    mails = [parse(member.data, member.name) for member in members(data, "simple.mbox")]
    assert len(rows) == len(mails) == 2
    assert all(word in mail.text for word, mail in zip(("One.", "Two."), mails, strict=True))


def test_a_message_without_headers_has_the_sender_and_date_of_its_line() -> None:
    (mail,) = (
        parse(member.data, member.name) for member in members(f"{DATED}\nNote: this\n".encode(), "a.mbox")
    )
    assert mail.metadata["from"] == "ann@x.org"
    assert mail.date is not None
    assert mail.date.isoformat() == "2024-01-01T10:00:00+00:00"
    assert mail.text.endswith("Note: this")


def test_a_message_without_a_subject_is_called_by_its_sender_and_day() -> None:
    sent = "Date: Tue, 12 Mar 2024 10:00:00 +0100\nMessage-ID: <CAF7a9c81@mail.example>"
    box = "\n\n".join(
        f"From ann@x.org Tue Mar 12 10:00:00 2024\nFrom: Ann <ann@x.org>\n{line}{sent}\n\nText."
        for line in ("", "Subject:\n", "Subject: Keys\n")
    )
    titles = [member.stated.get("title", "") for member in members(box.encode(), "a.mbox")]
    assert titles == ["(no subject), Ann, 2024-03-12", "(no subject), Ann, 2024-03-12", ""]


def test_a_mailbox_of_empty_messages_has_no_content() -> None:
    with pytest.raises(EmptyFileError):
        parse(f"{DATED}\n\n{SECOND}".encode(), "a.mbox")


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("part", ["<style>", "</style>", "<!--", "<title", "&a"])
def test_hostile_pages_of_mails_cost_no_more_than_their_length(part: str) -> None:
    head = "From: a@x.org\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=b\n\n"
    bodies = f"--b\nContent-Type: text/plain\n\nA.\n--b\nContent-Type: text/html\n\n{part * 20_000}\n--b--\n"
    assert parse((head + bodies).encode(), "a.eml")


@pytest.mark.slow
@pytest.mark.usefixtures("in_linear_time")
def test_many_lines_that_begin_no_message_take_linear_time() -> None:
    message = f"{DATED}Subject: a\n\n" + "From the start\n" * 20 + "\nFrom x y\n\n"
    assert sum(1 for _ in members((message * 2_000).encode(), "a.mbox")) == 2_000

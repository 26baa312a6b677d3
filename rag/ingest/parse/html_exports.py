"""What programs write into a page in ways of their own, turned into plain HTML before its conversion.

Google Docs states the title by a class of its paragraph, and the level of a list by the end of a class. It
writes comments and footnotes at the end, and leads links over its own address. Word has other names for some
of these. Google Sheets writes the letters of columns and the numbers of rows into cells. EUR-Lex states by
classes what is a heading, and has the numbers of points next to their texts. Sphinx writes the functions and
options that it documents as terms of lists.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import unquote

from rag.text.plain_text import with_replacements

_TITLE = re.compile(
    r"<p\b(?:(?=[^<>]*\bid\s?=\s?[\"']h\.)(?=[^<>]*\bclass\s?=\s?[\"'](?:[\w-]+ )*title[\"' ])"
    r"|(?=[^<>]*\bclass\s?=\s?[\"']?MsoTitle\b))[^<>]*>((?:[^<]|<(?!/?p\b)){1,2000})</p\s*>",
    re.IGNORECASE,
)
_LEVELS_OF_LAW = {
    **dict.fromkeys(("doc-ti", "title-doc-first", "title-annex-1"), 1),
    **dict.fromkeys(("ti-section-1", "ti-grseq-1", "title-division-1", "title-gr-seq-level-1"), 2),
    **dict.fromkeys(("ti-art", "title-article-norm"), 3),
}
"""The levels of headings by their classes in the Official Journal, and in consolidated texts."""
_CLASSES = f"({'|'.join(_LEVELS_OF_LAW)})"
_SUBTITLES = "doc-ti|title-doc-last|title-annex-2|ti-section-2|title-division-2|sti-art|stitle-article-norm"
_OF_CLASS = r"<p\b[^<>]{0,300}\bclass\s?=\s?[\"'](?:oj-)?(?:%s)[\"'][^<>]{0,300}>"
_WORDS = r"(?:[^<]|<(?!/?p\b)){1,2000}+"
_HEADING_OF_LAW = re.compile(
    rf"{_OF_CLASS % _CLASSES}({_WORDS})</p>"
    rf"(?:(\s*(?:<div\b[^<>]{{0,300}}>\s*)?){_OF_CLASS % _SUBTITLES}({_WORDS})</p>)?"
    rf"((?:\s*{_OF_CLASS % 'doc-ti'}{_WORDS}</p>)*)"
)
"""The two lines of a heading, and what follows of the title of an act."""
_NUMBER_OF_LAW = re.compile(
    r"(?:<div\b[^<>]{0,300}\bgrid-list-column-1\b[^<>]{0,300}>\s*)?(<span\b[^<>]{0,300}>[^<>]{1,40})</span>(?:\s*</div>)?\s*"
    r"(<div\b[^<>]{0,300}\b(?:grid-list-column-2|inline-element)\b[^<>]{0,300}>(?:\s*<p\b[^<>]{0,300}>)?)"
)
_GRID = re.compile(
    r"<t[hd]\b[^<>]{0,300}?\bclass\s?=\s?[\"'][^\"'<>]{0,200}?\b(?:(?:row|column)-headers?-background|row-header|freezebar-)"
    r"[^<>]{0,300}>(?:[^<]|<(?!/?t[hrd]\b)){0,500}+</t[hd]>",
    re.IGNORECASE,
)
"""The letter of a column or the number of a row, or a bar behind frozen ones."""
_TAG = re.compile(r"<[^<>]*>")
_AROUND = re.compile(r"</?(?:p|div|span)\b[^<>]*>", re.IGNORECASE)
_INSIDE = r"(?:[^<]|<(?!/?div\b))*+</div\s*>"
_BEFORE_LINK = r"<div\b[^<>]*>(?:\s|<(?!/?div\b|/?a\b)[^<>]*>)*<a\b[^<>]{0,500}?\bhref\s?=\s?[\"']?#"
_COMMENT = re.compile(rf"{_BEFORE_LINK}(?:cmnt_ref|_msoanchor_)\d+{_INSIDE}", re.IGNORECASE)
_NOTE = re.compile(
    rf"{_BEFORE_LINK}(?:_?ftn(?:t_)?ref|sdfootnote)(?P<number>\d+)(?P<text>{_INSIDE})", re.IGNORECASE
)
_MARK = re.compile(
    r"(?:<sup\b[^<>]*>\s*)?<a\b[^<>]{0,500}?\bhref\s?=\s?[\"']?#(?:(?P<comment>cmnt|_msocom_)|_?ftnt?|sdfootnote)(?P<number>\d+)"
    r"(?:sym)?\b[^<>]*>(?:[^<]|<(?!/?a\b))*?</a\s*>(?:\s*</sup\s*>)?",
    re.IGNORECASE,
)
_BLOCK_END = re.compile(r"(?=</li\s*>)|(?<=</p>)|(?<=</h[1-6]>)", re.IGNORECASE)
_FAR = 20_000  # characters from a mark to the end of its block
_REDIRECT = re.compile(
    r"(\bhref\s?=\s?[\"'])https?://(?:(?:www\.)?google\.[a-z.]{2,6}/url|(?:www\.)?youtube\.com/redirect|lm?\.facebook\.com/l\.php"
    r"|slack-redir\.net/link|[a-z0-9]+\.safelinks\.protection\.outlook\.com/)"
    r"\?(?:[^\"'<>]{0,2000}?(?:&|;))?(?:q|url|u)=(https?(?::|%3a)[^\"'<>&\s]{1,2000})[^\"'<>]*",
    re.IGNORECASE,
)
"""A link that leads over a service which counts or checks it."""
_LEVEL = re.compile(
    r"(?P<end></li\s*>\s*</(?:ul|ol)\s*>\s*)?(?P<open><(?P<tag>ul|ol)\b[^<>]{0,500}?\blst-\w+-(?P<level>\d)\b[^<>]*>)"
    r"|</(?:ul|ol)\s*>",
    re.IGNORECASE,
)
_DOCUMENTED = re.compile(
    r"<(?:(?P<end>/)?dl\b|h(?P<level>[1-6])\b|dt\b[^<>]{0,2000}>(?P<signature>(?:[^<]|<(?!/?d[tdl]\b))*+)</dt\s*>)",
    re.IGNORECASE,
)
"""A list of terms, its end, a heading, or a term: of Sphinx if its name has a class."""
_NAMED = re.compile(r"<[^<>]{1,300}\b(?:descname|sig-name)\b")
_BESIDE_SIGNATURE = re.compile(
    r"<(a|span)\b[^<>]{0,1000}\b(?:headerlink|viewcode-link)\b[^<>]*>[^<>]*</\1\s*>"
)
_STYLE = re.compile(r"<style\b[^<>]{0,500}>", re.IGNORECASE)
_STYLE_END = re.compile(r"</style", re.IGNORECASE)
_RULE = re.compile(r"\.([\w-]{1,100})\s*\{([^{}]{0,2000})\}")
_BOLD = re.compile(r"font-weight\s*:\s*(?:bold|[6-9]00)\b", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-6]\b", re.IGNORECASE)
_PARAGRAPH = re.compile(
    r"(?P<open><(?P<tag>p|div)\b[^<>]{0,1000}>\s*)(?P<spans>(?:<span\b[^<>]{0,1000}>[^<>]{1,200}</span\s*>\s*){1,9})"
    r"(?=</(?P=tag)\s*>)",
    re.IGNORECASE,
)
_STYLED = re.compile(r"<span\b([^<>]*)>([^<>]*)", re.IGNORECASE)
_SPAN = re.compile(
    r"<span\b[^<>]{0,500}?\bclass\s?=\s?[\"']([^\"'<>]{1,500})[\"'][^<>]{0,500}>([^<>]+)</span", re.IGNORECASE
)


_CHAT_BODY = '<div class="page_body chat_page">'
_CHAT_NAME = re.compile(r'<div class="page_header">[^"]{0,200}"content[^"]*">[^"]{0,200}"text bold">([^<]*)<')
_CHAT_MESSAGE = re.compile(r'<div class="message (?:default|service)')
_CHAT_MOMENT = re.compile(r'date details" title="(\d\d)\.(\d\d)\.(\d{4}) (\d\d:\d\d)')
_CHAT_SENDER = re.compile(r'<div class="from_name">([^<]*)<')
_CHAT_REPLY = re.compile(r"#go_to_message(\d+)")
_CHAT_MEDIA = re.compile(r'class="(photo|video_file|animated|sticker)_wrap')
_CHAT_TEXT = re.compile(
    r'<div class="(?:text|title bold|status details|question bold|answer)">((?:[^<]|<(?!/?div\b))*+)</div'
)


def plain_chat(page: str) -> str:
    """A page that Telegram exported a chat to, as days and messages in plain HTML; other pages as they are.

    A message below another one of the same sender doesn't repeat the name.
    """
    head, mark, body = page.partition(_CHAT_BODY)
    parts: list[str] = []
    senders: dict[str, str] = {}
    sender, day, last = "somebody", "", ""
    for message in _CHAT_MESSAGE.split(body)[1:]:
        own, _, forwarded = message.partition('<div class="forwarded body">')
        if name := _CHAT_SENDER.search(own):
            sender = name[1].strip()
        about = sender
        if author := _CHAT_SENDER.search(forwarded):
            about += f", forwarded from {author[1].strip()}"
        if (answered := _CHAT_REPLY.search(own)) and answered[1] in senders:
            about += f", to {senders[answered[1]]}"
        senders[message.partition('id="message')[2].partition('"')[0]] = sender
        texts = [f"({media.replace('_', ' ')})" for media in _CHAT_MEDIA.findall(message)]
        texts += [text.strip() for text in _CHAT_TEXT.findall(message)]
        if texts and (moment := _CHAT_MOMENT.search(own)):
            date = f"{moment[3]}-{moment[2]}-{moment[1]}"
            parts += [f"<h1>{date}</h1>"] if date != day else []
            parts += [f"<p>{about} ({moment[4]}): {'<br>'.join(texts)}</p>"]
            day, last = date, f"{date}T{moment[4]}:00Z"
    if not mark or not parts:
        return page
    title = "".join(_CHAT_NAME.findall(head)[:1]).strip()
    dated = f'<meta property="article:published_time" content="{last}">'
    return (
        f"<html><head><title>{title}</title>{dated}</head><body><main>{''.join(parts)}</main></body></html>"
    )


def in_plain_html(page: str) -> tuple[str, str, int]:
    """The page in plain HTML, its title, "" if no paragraph is one, and the number of comments left out.

    The title is a heading, notes stand below what refers to them, and lists inside each other.
    Example: '<p class="c1 title">Trip</p>' -> '<h1>Trip</h1>' with the title "Trip".
    """
    page = _REDIRECT.sub(
        lambda link: link[1] + html.escape(unquote(html.unescape(link[2]))), _GRID.sub("", page)
    )
    page, comments = _COMMENT.subn("", page)
    titles: list[str] = []

    def heading(words: str, level: int) -> str:
        if level == 1:
            titles.append(" ".join(html.unescape(_TAG.sub("", words)).split()))
        return f"<h{level}>{words}</h{level}>"

    def heading_of_law(lines: re.Match[str]) -> str:
        class_, first, between, second, below = lines.groups(default="")
        return f"{between}{heading(f'{first} {second}'.strip(), _LEVELS_OF_LAW[class_])}{below}"

    page = _TITLE.sub(lambda title: heading(title[1], 1), page)
    page = _NUMBER_OF_LAW.sub(r"\2\1</span> ", _HEADING_OF_LAW.sub(heading_of_law, page))
    page = _with_signatures(_with_nested_lists(_with_notes_below(page)))
    return _with_bold_classes(_with_bold_paragraphs(page)), next(iter(titles), ""), comments


def _with_notes_below(page: str) -> str:
    """The page with each footnote below the block that refers to it, and without marks of comments."""
    # Without the number at the beginning of each, which leads back.
    texts = {note["number"]: note["text"].partition("</a>")[2] for note in _NOTE.finditer(page)}
    notes = {number: _AROUND.sub("", text).replace("&nbsp;", " ").strip() for number, text in texts.items()}
    page = _NOTE.sub("", page)
    changes: list[tuple[int, int, str]] = []
    for mark in _MARK.finditer(page):
        note = "" if mark["comment"] else notes.pop(mark["number"], "")
        if not note and not mark["comment"]:
            continue
        changes.append((*mark.span(), f"[^{mark['number']}]" if note else ""))
        if note:
            end = _BLOCK_END.search(page, mark.end(), mark.end() + _FAR)
            at = end.start() if end else mark.end()
            changes.append((at, at, f"<p>[^{mark['number']}]: {note}</p>"))
    return with_replacements(page, sorted(changes, key=lambda change: change[:2]))


def _with_nested_lists(page: str) -> str:
    """The page with lists of a deeper level inside the item above them."""
    levels: list[tuple[str, int]] = []  # the lists that are open, and their levels

    def nested(match: re.Match[str]) -> str:
        if not match["open"]:
            ends = "".join(f"</li></{tag}>" for tag, _ in levels[-2::-1])
            levels.clear()
            return match[0] + ends
        tag, level = match["tag"], int(match["level"])
        if not match["end"] or not levels:
            levels[:] = [(tag, level)]
            return match[0]
        if level > levels[-1][1]:
            levels.append((tag, level))
            return match["open"]
        ends = ""
        while len(levels) > 1 and levels[-1][1] > level:
            ends += f"</li></{levels.pop()[0]}>"
        return f"{ends}</li>" if ends else match[0]

    return _LEVEL.sub(nested, page) if "lst-" in page else page


def _with_signatures(page: str) -> str:
    """The page with headings for the functions, classes and options that Sphinx documents.

    Example: '<dl><dt id="f"><b class="descname">f</b>(x)</dt>…' -> '<dl><h2><code>f(x)</code></h2>…'.
    """
    above, depth = 1, 0
    opened: list[bool] = []  # whether each open list documents something
    changes: list[tuple[int, int, str]] = []
    for part in _DOCUMENTED.finditer(page):
        signature = part["signature"]
        if part["level"]:
            above = above if opened else int(part["level"])
        elif signature is None and not part["end"]:
            opened.append(False)
        elif part["end"]:
            depth -= opened.pop() if opened else 0
        elif opened and _NAMED.search(signature):
            depth += not opened[-1]
            opened[-1] = True
            level = min(above + depth, 6)
            words = " ".join(_TAG.sub("", _BESIDE_SIGNATURE.sub("", signature)).split())
            changes.append((*part.span(), f"<h{level}><code>{words}</code></h{level}>"))
    return with_replacements(page, changes)


def _with_bold_paragraphs(page: str) -> str:
    """The page with <b> around paragraphs whose words are all in spans that are bold by their own style."""

    def marked(paragraph: re.Match[str]) -> str:
        spans = [
            style for style, words in _STYLED.findall(paragraph["spans"]) if html.unescape(words).strip()
        ]
        is_bold = spans and all(map(_BOLD.search, spans))
        return f"{paragraph['open']}<b>{paragraph['spans']}</b>" if is_bold else paragraph[0]

    return page if _HEADING.search(page) else _PARAGRAPH.sub(marked, page)


def _with_bold_classes(page: str) -> str:
    """The page with <b> in spans that are bold by a class of its first style sheet."""
    bold = classes_with(_BOLD, next(style_sheets(page), ""))

    def marked(span: re.Match[str]) -> str:
        above = span.string[max(0, span.string.rfind("<", 0, span.start())) : span.start()]
        is_bold = not bold.isdisjoint(span[1].split()) and span[2].strip() and above[:2].lower() != "<h"
        return span[0].replace(f">{span[2]}</", f"><b>{span[2]}</b></") if is_bold else span[0]

    return _SPAN.sub(marked, page) if bold else page


def style_sheets(page: str) -> Iterator[str]:
    """The style sheets in a page."""
    at = 0
    while (begin := _STYLE.search(page, at)) and (end := _STYLE_END.search(page, begin.end())):
        yield page[begin.end() : end.start()]
        at = end.end()


def classes_with(style: re.Pattern[str], sheet: str) -> set[str]:
    """The classes to which a style sheet gives a style that matches."""
    return {rule[1] for rule in _RULE.finditer(sheet) if style.search(rule[2])}

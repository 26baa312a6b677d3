"""Addresses of documents: what a person may be sent to, and what a template makes of a path."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.uris import is_template, page_address, web_address


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("https://example.org", "https://example.org"),
        (" HTTPS://Example.ORG:8443/x ", "https://example.org:8443/x"),
        ("https://example.org/a b?ü#c d", "https://example.org/a%20b?%C3%BC#c%20d"),
        ("https://example.org/%20%C3%BC%zz%", "https://example.org/%20%C3%BC%25zz%25"),
        ('https://example.org/"><script>', "https://example.org/%22%3E%3Cscript%3E"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
    ],
)
def test_an_address_is_percent_encoded(written: str, address: str) -> None:
    assert web_address(written) == address
    assert web_address(address) == address


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "example.org",
            "//example.org/",
            "/x",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
        ),
        *(
            "ftp://example.org",
            "https:///x",
            "https://",
            "https://a b/",
            "https://a..b/",
            "https://x.org:99999/",
        ),
        *(
            "https://bank.example@evil.example",
            "https://x.org\\@evil.example",
            "https://[::1",
            "https://x.org/a\nb",
        ),
        *("https://x.org/a\u202eb", "https://x.org/" + "x" * 2000),
    ],
)
def test_anything_else_is_no_address(written: str) -> None:
    assert web_address(written) is None


@pytest.mark.parametrize(
    ("template", "right"),
    [
        ("https://wiki.example.com/{path}", True),
        ("https://wiki.example.com:8080/w/{stem}?p={path}#x", True),
        ("https://wiki.example.com/", False),
        ("https://{path}", False),
        ("https://{stem}.example.com/", False),
        ("https://wiki.example.com:{path}/", False),
        ("https://wiki.example.com/{path}/{title}", False),
        ("https://wiki.example.com/{{path}}", False),
        ("javascript:{path}", False),
        ("{path}", False),
    ],
)
def test_a_template_has_a_place_for_the_path_behind_its_host(template: str, right: bool) -> None:  # noqa: FBT001 the parameter
    assert is_template(template) is right


def test_a_page_has_its_path_or_its_stem_in_its_address() -> None:
    assert page_address("https://w.example/{path}", "hr/New hires?#%.md") == (
        "https://w.example/hr/New%20hires%3F%23%25.md"
    )
    assert page_address("https://w.example/{stem}?of={path}", "hr/v1.2/é.md") == (
        "https://w.example/hr/v1.2/%C3%A9?of=hr/v1.2/%C3%A9.md"
    )
    assert page_address("https://w.example/{stem}", "README") == "https://w.example/README"
    assert page_address("https://w.example/{path}", "{stem}.md") == "https://w.example/%7Bstem%7D.md"
    assert page_address("https://w.example/{path}", "x" * 2000) is None
    assert page_address("https://w.example/{path}", "") is None


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_no_path_leaves_the_host_or_comes_back_changed(path: str) -> None:
    address = page_address("https://w.example/docs/{path}", path)
    assert address
    assert address.isascii()
    parts = urlsplit(address)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("https", "w.example", "", "")
    assert unquote(parts.path) == f"/docs/{path}"

"""Addresses in one form, what pages say of themselves, and which addresses anybody may reach."""

from __future__ import annotations

import pytest

from rag.ingest.origins.guarded_http import is_public
from rag.ingest.origins.origin_look import FetchError
from rag.ingest.origins.page_links import canonical_url, listing, page_facts, path_below


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("HTTPS://Example.org:443/a/../b/%7ejoe#x", "https://example.org/b/~joe"),
        ("https://example.org", "https://example.org/"),
        ("/c?q=%c3%bc ü", "https://example.org/c?q=%C3%BC%20%C3%BC"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("https://example.org:8443/", "https://example.org:8443/"),
        ("https://user:pw@example.org/", None),
        ("mailto:a@example.org", None),
        ("javascript:alert(1)", None),
        ("https://example.org:99999/", None),
        ("https://[broken/", None),
    ],
)
def test_an_address_has_one_form(written: str, expected: str | None) -> None:
    assert canonical_url(written, "https://example.org/a") == expected
    if expected:
        assert canonical_url(expected) == expected


def test_an_address_as_a_path() -> None:
    assert path_below("https://example.org/a/?b=c") == "example.org/a/index?b=c"
    assert path_below("https://example.org/%2e%2e/%2F/x") == "example.org/x"


@pytest.mark.usefixtures("within_a_minute")
def test_a_page_of_open_tags_takes_no_longer_than_its_size() -> None:
    for part in (b"<a ", b'<a href="', b"<meta ", b"<!--", b"<a href=x>"):
        page_facts(part * 100_000, "https://example.org/", {})


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.1"),
        *("224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111"])
def test_addresses_that_are(address: str) -> None:
    assert is_public(address)


def test_a_listing_with_a_document_type_is_none_and_a_damaged_one_is_an_error() -> None:
    bomb = b'<!DOCTYPE urlset [<!ENTITY a "aaaa">]><urlset><url><loc>&a;</loc></url></urlset>'
    assert listing(bomb) is None
    assert listing(b"<html><body>x</body></html>") is None
    assert listing(b"no xml") is None
    with pytest.raises(FetchError, match="damaged"):
        listing(b"<urlset><url><loc>https://example.org/</loc></url>")


def test_a_feed_is_read_without_what_is_nested_in_its_entries() -> None:
    atom = b"""<feed xmlns="http://www.w3.org/2005/Atom"><title>All</title><link href="https://x.org/"/>
      <entry><title>One</title><link rel="edit" href="/no"/><link href="/one"/><updated>2026-01-01</updated>
      <source><title>Other</title><link href="/other"/></source></entry></feed>"""
    read = listing(atom)
    assert read
    assert [(one.url, one.title, one.date) for one in read.entries] == [("/one", "One", "2026-01-01")]

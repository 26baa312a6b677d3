"""PDFs that claim what isn't there, or go round in circles, cost little and say why."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from rag.errors import ParseError
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.work_limits import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

HELLO = b"BT /F 9 Tf 9 9 Td (Hello) Tj ET "
SECONDS = 20.0  # for each file; the slowest takes less than two


def pdf(*objects: bytes, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, the first of which is its catalog."""
    data, starts = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        starts.append(b"%010d 00000 n \n" % len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    size, at = len(objects) + 1, len(data)
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, b"".join(starts))
    return (
        data + table + b"trailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, at)
    )


def stream(content: bytes, about: bytes = b"") -> bytes:
    packed = zlib.compress(content)
    return b"<<%s/Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (about, len(packed), packed)


CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"
FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"


def one_page(content: bytes, *more: bytes, count: int = 1, trailer: bytes = b"") -> bytes:
    """A page with this content, which may use font F and the first further object as picture X."""
    resources = b"/Resources<</Font<</F 5 0 R>>/XObject<</X 6 0 R>>>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R%s>>" % resources
    pages = b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % count
    return pdf(CATALOG, pages, page, stream(content), FONT, *more, trailer=trailer)


IMAGE = b"/Type/XObject/Subtype/Image/Width 60000/Height 60000/BitsPerComponent 8/ColorSpace/DeviceRGB"
READ = {
    "pages that aren't there": one_page(HELLO, count=100_000_000),
    "a table that comes before itself": one_page(HELLO, trailer=b"/Prev 9"),
    "a huge picture beside text": one_page(HELLO + b"/X Do", stream(b"", IMAGE)),
}
REFUSED = {
    "pages in a circle": (pdf(CATALOG, b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 1000>>"), "damaged"),
    "a huge picture": (one_page(b"/X Do", stream(b"", IMAGE)), "only images"),
    "half a file": (one_page(HELLO)[:200], "damaged"),
}


@pytest.mark.parametrize("data", READ.values(), ids=list(READ))
async def test_what_a_pdf_claims_beside_its_text_does_no_harm(data: bytes) -> None:
    assert (await parse_safely(data, "a.pdf", budget=Budget(SECONDS))).text == "Hello"


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=list(REFUSED))
async def test_a_hostile_pdf_is_refused_and_the_next_file_is_read(data: bytes, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        await parse_safely(data, "a.pdf", budget=Budget(SECONDS))
    assert (await parse_safely(one_page(HELLO), "b.pdf", budget=Budget(SECONDS))).text == "Hello"


def chain(count: int) -> Sequence[bytes]:
    """Entries of an outline, each of which is followed by the first."""
    return [b"<</Title(Hello)/Dest[3 0 R/Fit]/Parent 6 0 R/Next 7 0 R/First 6 0 R>>"] * count


async def test_an_outline_in_a_circle_ends() -> None:
    data = one_page(HELLO, b"<</First 7 0 R/Last 7 0 R>>", *chain(3))
    data = data.replace(CATALOG, b"<</Type/Catalog/Pages 2 0 R/Outlines 6 0 R>>")
    document = await parse_safely(data, "a.pdf", budget=Budget(SECONDS))
    assert [block.title for block in document.blocks] == ["Hello"]

"""PDFs that tests write by hand; pdfium finds their objects without a table."""

from __future__ import annotations


def pdf(*pages: str, drawing: bytes = b"") -> bytes:
    """A PDF with these texts on its pages, line by line. The first page also has the drawing."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for at, text in enumerate(pages):
        lines = " ".join(f"({line}) Tj T*" for line in text.split("\n"))
        content = f"BT /F 12 Tf 14 TL 50 750 Td {lines} ET ".encode() + (b"" if at else drawing)
        resources = "/Resources<</Font<</F 3 0 R>>>>"
        page = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents {5 + 2 * at} 0 R{resources}>>"
        objects += [page.encode(), b"<</Length %d>>stream\n%s\nendstream" % (len(content), content)]
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % numbered for numbered in enumerate(objects, 1))
    return b"%%PDF-1.7\n%strailer\n<</Size %d/Root 1 0 R>>\n%%%%EOF\n" % (body, len(objects) + 1)


def noise(width: int, height: int, seed: bytes) -> bytes:
    """A drawing that hardly anything packs: grey dots without an order, at the foot of a page."""
    start = b"q 500 0 0 %d 50 20 cm BI /W %d /H %d /CS /G /BPC 8 /F /AHx ID "
    return start % (500 * height // width, width, height) + seed.hex().encode() + b"> EI Q"

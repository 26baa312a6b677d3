"""ALTO, PAGE and hOCR: the text of scanned pages, by blocks and pages, with whole words."""

from __future__ import annotations

from rag.ingest.parse.parsers import parse
from tests.ingest.parse.document_shape import texts_of


def alto_line(*words: str) -> str:
    """A line of ALTO."""
    strings = '<SP WIDTH="15"/>'.join(f'<String ID="s" HPOS="876" CONTENT="{word}"/>' for word in words)
    return f'<TextLine ID="l">{strings}</TextLine>'


def page_region(region: str, text: str, kind: str = "paragraph") -> str:
    """A region of PAGE with a line of words and no text of its own."""
    words = "".join(
        f"<Word><Glyph><TextEquiv><Unicode>x</Unicode></TextEquiv></Glyph><TextEquiv><Unicode>{word}</Unicode>"
        f'</TextEquiv><TextEquiv index="1"><Unicode>worse</Unicode></TextEquiv></Word>'
        for word in text.split()
    )
    coordinates = '<Coords points="1,2"/>'
    return f'<TextRegion type="{kind}" id="{region}">{coordinates}<TextLine>{words}</TextLine></TextRegion>'


def test_a_page_of_alto_is_its_blocks_with_words_that_lines_cut() -> None:
    known = '<TextLine><String CONTENT="Dis" SUBS_TYPE="HypPart1" SUBS_CONTENT="Disgrace"/><HYP CONTENT="-"/>'
    known += '</TextLine><TextLine><String CONTENT="grace" SUBS_TYPE="HypPart2" SUBS_CONTENT="Disgrace"/>'
    known += '<String CONTENT="came"/></TextLine>'
    unknown = f'<TextLine><String CONTENT="parlia"/><HYP CONTENT="¬"/></TextLine>{alto_line("ment", "met")}'
    pages = f"<Page><PrintSpace><TextBlock>{known}</TextBlock><TextBlock>{unknown}</TextBlock></PrintSpace>"
    pages += f"</Page><Page/><Page><TextBlock>{alto_line('Second', 'page')}</TextBlock></Page>"
    document = parse(f"<alto><Layout>{pages}</Layout></alto>".encode(), "a.xml")
    assert texts_of(document) == ["Disgrace came", "parliament met", "Second page"]
    assert [document.text[start:][:6] for start in document.pages] == ["Disgra", "Second", "Second"]


def test_a_page_of_page_xml_is_its_regions_in_reading_order() -> None:
    order = "".join(f'<RegionRefIndexed regionRef="{region}"/>' for region in "habcd")
    regions = page_region("d", "and so on") + page_region("a", "On clocks", "heading")
    regions += page_region("b", "T", "drop-capital") + page_region("c", "hey run")
    regions += page_region("h", "12", "page-number")
    regions += '<TextRegion id="z"><TextEquiv><Unicode>Whole region</Unicode></TextEquiv></TextRegion>'
    page = f"<Page><ReadingOrder><OrderedGroup>{order}</OrderedGroup></ReadingOrder>{regions}</Page>"
    document = parse(f"<PcGts><Metadata><Creator>x</Creator></Metadata>{page}</PcGts>".encode(), "a.xml")
    assert texts_of(document) == ["# On clocks", "They run", "and so on", "Whole region"]
    assert document.pages == (0,)


def test_hocr_is_read_by_its_lines_whatever_it_is_called() -> None:
    lines = "".join(
        f"<span class='ocr_line' title='bbox 1 2 3 4'>{line}</span>"
        for line in ("<span class='ocrx_word'>The</span> <span class='ocrx_word'>parlia-</span>", "ment met")
    )
    page = f"<div class='ocr_page' title='ppageno 0'><p class='ocr_par'>{lines}</p></div>"
    html = f"<html><head><title></title></head><body>{page}<div class='ocr_page'>{lines}</div></body></html>"
    for name in ("a.hocr", "a.html"):
        document = parse(html.encode(), name)
        assert texts_of(document) == ["The parliament met", "The parliament met"]
        assert [*document.pages] == [0, len("The parliament met") + 2]
    assert "parlia-" in parse(html.replace("</p>", "").encode(), "a.html").text  # not XML: as any page

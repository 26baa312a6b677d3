"""PDF: words and their places, layout, tables, sections, forms and properties."""

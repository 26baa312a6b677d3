"""Pages of PDFs as pictures, drawn in a confined process of their own."""

"""Files in, chunks out: discover, parse, chunk, embed, write. See README.md in this folder."""

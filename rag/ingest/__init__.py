"""Files in, chunks out: discover, parse, chunk, embed, write."""

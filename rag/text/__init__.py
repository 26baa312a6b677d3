"""Texts: their lines, sentences and words, invisible characters, flags, languages, pages and cells."""

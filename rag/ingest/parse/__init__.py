"""Parses files into documents: one module for each format or family; `parsers` chooses it."""

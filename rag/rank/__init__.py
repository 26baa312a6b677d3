"""Ranking as pure functions: fusion, recency, duplicates, diversity and excerpts."""

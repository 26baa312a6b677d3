"""Needles: texts and regular expressions that a text must contain, and the phrases of a query."""

"""Explains an empty result, or why an expected source is not among the hits."""

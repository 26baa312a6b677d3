"""Renders answers and sources: as JSON, as a context for a prompt, and safe to show."""

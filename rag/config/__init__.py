"""Settings: their models and defaults, loading them, and checking them for mistakes and contradictions."""

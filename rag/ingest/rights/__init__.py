"""Who may see the documents of a run: as requested, as recorded earlier, and as decided of both."""

"""Confined processes: how a process is confined to its task, and the one that draws pages of files."""

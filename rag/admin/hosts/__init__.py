"""Hosts of assistants: where their configurations are, what an entry is like, and how one is merged in."""

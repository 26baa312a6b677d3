"""Reads tables. Servers may import everything here; nothing here writes, or imports what does."""

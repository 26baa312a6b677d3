"""Risky files are parsed in a process of their own, with limits."""

"""Starts the server of a bundle, in the environment that uv makes of its pyproject.toml."""

from refdesk_scripts import refdesk

refdesk()

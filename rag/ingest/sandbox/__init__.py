"""Parses risky files in a confined process with limits on time and memory."""

"""Finds and checks the citations and quotes of an answer."""

"""Conditions on metadata (`grammar`), and exact texts to search for (`needles`)."""

"""Writes tables and files of the data folder. Servers may import nothing from here."""

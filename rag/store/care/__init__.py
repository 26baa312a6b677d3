"""Backup, restore, checks, rebuilds and rehearsals: what an operator does with a desk besides ingesting."""

"""Judged sets: questions with what a good answer must find, in three forms."""

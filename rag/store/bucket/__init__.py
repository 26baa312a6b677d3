"""Copies a desk to a bucket, fetches it from there, and checks whether a bucket can hold one."""

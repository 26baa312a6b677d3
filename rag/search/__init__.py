"""The read path: one search from the question to the answer."""

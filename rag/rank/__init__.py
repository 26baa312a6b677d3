"""Rankings, as pure functions."""

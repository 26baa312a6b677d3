"""Citations in an answer: found, resolved, checked."""

"""What an operator sees: the log, the audit, metrics and spans."""

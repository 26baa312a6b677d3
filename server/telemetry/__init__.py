"""What an operator sees: logs, the audit, metrics, spans."""

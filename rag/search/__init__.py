"""The read path, from a question to its answer. Programs use `Desk` or `tool_functions`."""

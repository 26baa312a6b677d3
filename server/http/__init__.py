"""The HTTP transport: who may come in, and how they are identified."""

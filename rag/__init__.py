"""refdesk as a library: documents in, cited passages out. Knows nothing of MCP."""

"""Access control: valid names, API keys, tenants, and the rule who may see a source."""

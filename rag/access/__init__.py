"""Who asks, and what they may see: the rule, keys, tenants."""

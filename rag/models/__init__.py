"""Everything that is computed by a model, here or behind an endpoint."""

"""`refdesk-admin`: everything that changes or inspects a desk, one module per command group."""

"""The HTTP transport: connections, middleware, authentication, endpoints."""

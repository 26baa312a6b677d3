"""Embedding models, rerankers and chat models, local or behind an HTTP endpoint."""

"""Rankings as pure functions, and the models that rerank."""

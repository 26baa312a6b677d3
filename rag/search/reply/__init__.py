"""What leaves a search: JSON replies, contexts for prompts, traces; safe to show to a model."""

"""What of a document is stored: expiry, masking of personal data, moderation."""

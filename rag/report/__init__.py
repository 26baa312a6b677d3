"""Pages of HTML for people."""

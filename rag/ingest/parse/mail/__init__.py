"""Mails, mailboxes and calendars. What is attached to a mail are documents of their own."""

"""`refdesk-admin connect`: assistants' hosts, where their configurations are, how an entry is merged in."""

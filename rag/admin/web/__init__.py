"""`refdesk-admin console`: the desk in a browser, for its administrator, on this machine only."""

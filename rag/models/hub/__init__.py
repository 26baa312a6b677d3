"""Models from a hub: which ones refdesk knows, the hub's HTTP protocol, and their folders on this machine.

Only `refdesk-admin model` uses this package. A server can't import it: it reads what lies on the disk.
"""

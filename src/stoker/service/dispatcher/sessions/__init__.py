"""Sessions of peers, and their leases."""

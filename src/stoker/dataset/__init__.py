"""Pipelines: what to compute. No sockets, no service; usable alone, in one process."""

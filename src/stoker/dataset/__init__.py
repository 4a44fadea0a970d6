"""Pipelines: what to compute. No sockets, no service; usable alone, in a single process."""

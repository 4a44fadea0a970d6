"""Deterministic epochs: the positions that a client asks of each worker."""

"""Connections of clients that read from a worker."""

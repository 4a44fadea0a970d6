"""Measurements of a client: what it waits for, and which part is slow."""

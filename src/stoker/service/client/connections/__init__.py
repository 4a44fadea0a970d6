"""Connections of a client to the workers of its tasks."""

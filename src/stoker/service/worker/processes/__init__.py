"""Processes of a worker: supervisor, children, their output, memory and activity."""

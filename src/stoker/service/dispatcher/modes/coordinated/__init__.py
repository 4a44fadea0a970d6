"""Coordinated reads: consumers that read all tasks in rounds."""

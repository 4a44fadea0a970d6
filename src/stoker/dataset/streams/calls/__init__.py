"""Calls of user functions: their ranges of positions, and recordings."""

"""Rows of `compare.py` without a service and without peers."""

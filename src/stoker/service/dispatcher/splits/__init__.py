"""Splits: listing, free splits, and their assignment to tasks."""

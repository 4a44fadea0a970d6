"""Rules that a dataset and its options must meet before it is distributed."""

"""Functions for users: `distribute`, `register_dataset`, and the source of distributed datasets."""

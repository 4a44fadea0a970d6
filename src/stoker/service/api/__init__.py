"""What users call: `distribute`, `register_dataset`, and the source of distributed datasets."""

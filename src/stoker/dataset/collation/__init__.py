"""Elements to batches and back: stacking, padding, cutting into rows."""

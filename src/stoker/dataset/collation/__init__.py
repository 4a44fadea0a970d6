"""Elements to batches and back: stacking, padding and cutting into rows."""

"""Tasks of a worker: their splits, and what their readers have been sent."""

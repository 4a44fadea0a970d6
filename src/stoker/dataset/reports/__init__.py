"""Reports about a pipeline: what is slow, advice, and `explain`."""

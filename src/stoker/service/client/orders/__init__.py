"""The order in which a client returns the chunks of its tasks."""

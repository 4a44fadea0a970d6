"""The client: one iterator that reads an iteration from its workers."""

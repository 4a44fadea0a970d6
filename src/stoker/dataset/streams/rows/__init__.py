"""Streams of rows by their numbers, gathered when a batch is built."""

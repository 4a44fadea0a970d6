"""Buffers of produced chunks, one kind per way of reading."""

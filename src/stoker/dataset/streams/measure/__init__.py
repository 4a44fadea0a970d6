"""Measurements of open pipelines: times, counts and memory of each stage."""

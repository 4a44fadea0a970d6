"""Descriptions of pipelines: nodes, splits, structure and wire form."""

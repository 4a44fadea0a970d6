"""Randomness for functions of datasets; see `generator`."""

from stoker.dataset.random import generator

__all__ = ["generator"]

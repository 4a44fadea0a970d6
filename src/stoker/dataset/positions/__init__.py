"""Datasets in which the position of every element is known without computing it."""

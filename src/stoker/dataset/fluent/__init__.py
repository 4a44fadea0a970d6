"""The methods of `Dataset` by family; each builds a node."""

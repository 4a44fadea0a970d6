"""The methods of `Dataset`, by family; each constructs a node."""

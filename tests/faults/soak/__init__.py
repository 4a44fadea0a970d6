"""A service of real processes under random faults, and the rules that its epochs must obey."""

"""Detection of functions whose results depend on earlier calls."""

"""What elements are: their structure, their spec, and the values NumPy does not have."""

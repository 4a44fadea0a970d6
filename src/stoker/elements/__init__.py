"""Elements: their structure, their spec, and the values that NumPy lacks."""

"""Elements as bytes: what travels on the wire and what is kept in files."""

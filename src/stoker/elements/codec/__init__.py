"""Elements encoded as bytes, for the wire and for files."""

"""Flow control of a client: credit and pace."""

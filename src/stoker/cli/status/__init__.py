"""Commands that show or change a running service."""

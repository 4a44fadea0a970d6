"""Tasks by position: the positions that clients want, and their elements until they are sent."""

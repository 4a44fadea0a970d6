"""Pickling of functions and objects, and the digests by which code is compared."""

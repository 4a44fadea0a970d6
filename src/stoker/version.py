"""Version of stoker, read by the build."""

VERSION = "0.1.0"

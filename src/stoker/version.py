"""Version of stoker; the build reads it here."""

VERSION = "0.1.0.dev0"

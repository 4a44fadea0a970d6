"""Error of a value that a user wrote."""

from stoker.errors import InvalidArgumentError


class OptionError(InvalidArgumentError):
    """A flag, a variable or a key of the configuration file is not valid."""

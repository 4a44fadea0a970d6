"""Values of listed splits in messages, whose text must be UTF-8: file names may be any bytes."""

from typing import Any

_ENCODING = "utf-8", "surrogateescape"
"""The form in which Python represents file names as str."""


def split_to_wire(value: Any) -> Any:
    r"""Return a listed split for a message: as bytes, if it is a file name that is not UTF-8.

    Args:
        value: a file name or a number, or a sequence of them.

    Raises:
        UnicodeEncodeError: if it is text that is no file name.

    Example:
        >>> split_to_wire("caf\udce9.txt"), split_to_wire("café.txt")
        (b'caf\xe9.txt', 'café.txt')
        >>> split_to_wire(("caf\udce9.txt", 0, 5))
        [b'caf\xe9.txt', 0, 5]
    """
    if isinstance(value, list | tuple):
        return list(map(split_to_wire, value))
    if not isinstance(value, str):
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode(*_ENCODING)
    return value


def split_from_wire(value: Any) -> Any:
    r"""Return a split as its source listed it.

    Example:
        >>> split_from_wire(b"caf\xe9.txt")
        'caf\udce9.txt'
    """
    if isinstance(value, list | tuple):
        return list(map(split_from_wire, value))
    return value.decode(*_ENCODING) if isinstance(value, bytes) else value

"""Short texts of values, for messages."""

from pathlib import PurePath
from typing import Any

import numpy as np

# Most characters of a text or number in full.
_LONGEST = 80

# Most members of a tuple, list or dict that are named.
_MEMBERS = 4


def brief(value: Any, depth: int = 2) -> str:
    """Return a text of a value for a message: numbers, text and paths themselves, arrays by shape.

    No code of the value's class is called, which might fail or take long.

    Args:
        value: any value.
        depth: levels of tuples, lists and dicts whose members are named.
    """
    kind = type(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    if isinstance(value, np.generic) and value.dtype != object:
        return brief(value.item())
    if isinstance(value, PurePath):
        value, kind = str(value), str
    if kind is int and value.bit_length() > 4 * _LONGEST:
        return "a large int"
    if kind in (int, float, complex, bool) or value is None:
        return repr(value)
    if kind in (str, bytes):
        return repr(value) if len(value) <= _LONGEST else f"{value[:_LONGEST]!r}..."
    if depth and kind in (tuple, list):
        members = [brief(member, depth - 1) for member in value[:_MEMBERS]]
        more = ", ..." if len(value) > _MEMBERS else "," if len(value) == 1 else ""
        text = ", ".join(members)
        return f"({text}{more})" if kind is tuple else f"[{text}{more.rstrip(',')}]"
    if depth and kind is dict:
        pairs = list(value.items())
        members = [f"{brief(k, 0)}: {brief(v, depth - 1)}" for k, v in pairs[:_MEMBERS]]
        return f"{{{', '.join(members)}{', ...' if len(pairs) > _MEMBERS else ''}}}"
    return f"<{kind.__qualname__}>"

"""How functions are called with elements: the members of a plain tuple are arguments."""

from collections.abc import Callable
from typing import Any


def apply(function: Callable[..., Any], element: Any) -> Any:
    """``function(element)``; a plain tuple is unpacked into arguments."""
    return function(*element) if type(element) is tuple else function(element)


def arguments_of(element: Any) -> tuple[Any, ...]:
    """What a function is called with for an element."""
    return element if type(element) is tuple else (element,)

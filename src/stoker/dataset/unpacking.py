"""Calls of user functions: the members of a plain tuple are separate arguments."""

from collections.abc import Callable
from typing import Any


def apply(function: Callable[..., Any], element: Any) -> Any:
    """Return ``function(element)``; a plain tuple is unpacked into arguments."""
    return function(*element) if type(element) is tuple else function(element)


def arguments_of(element: Any) -> tuple[Any, ...]:
    """Return the arguments with which a function is called for an element."""
    return element if type(element) is tuple else (element,)

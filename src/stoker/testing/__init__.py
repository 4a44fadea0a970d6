"""Assertions about datasets, for tests of programs that use stoker."""

from typing import TYPE_CHECKING

from stoker.lazy_names import lazy_names

if TYPE_CHECKING:
    from stoker.testing.resumable import assert_resumable
else:
    # Lazy, since the child processes import this package, too.
    __getattr__ = lazy_names("stoker.testing", {"assert_resumable": "stoker.testing.resumable"})

__all__ = ["assert_resumable"]


def __dir__() -> list[str]:
    return sorted(__all__)

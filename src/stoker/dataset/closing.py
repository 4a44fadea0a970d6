"""Objects that are closed at the end of a ``with`` block."""

from typing import Self


class Closing:
    """Base of objects with a method `close`, which the end of a ``with`` block calls."""

    def close(self) -> None:
        """Release the resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

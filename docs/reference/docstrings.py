"""Extension of griffe, which reads the docstrings for `make docs`."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Show the sections `Example:` as code: griffe knows only `Examples:`, which names several."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE
            )

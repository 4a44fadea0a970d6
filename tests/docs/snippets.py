"""The fenced code blocks of a Markdown document."""

import re
from dataclasses import dataclass

RUNNABLE = {"python": "python", "console": "console", "bash": "console", "sh": "console"}
"""Languages whose snippets are executed, and how."""

NOT_CODE = {"", "text", "mermaid", "json", "toml", "yaml"}
"""Languages of blocks that show something else; any other language is a mistake."""

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+) *(?P<language>[^\s`]*)[^`]*$")


@dataclass(frozen=True)
class Snippet:
    """One block: how it is executed, its text, and the line of the document its text begins on."""

    kind: str
    text: str
    line: int


def snippets_of(markdown: str) -> list[Snippet]:
    """The executable snippets of a document, in order.

    Raises:
        ValueError: a block never ends, or its language is neither executed nor known to be no code.
    """
    found = []
    lines = markdown.splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        number += 1
        if fence is None:
            continue
        first = number
        while number < len(lines) and lines[number].strip() != fence["ticks"]:
            number += 1
        if number == len(lines):
            raise ValueError(f"line {first}: the block that begins here never ends")
        language = fence["language"]
        if language in RUNNABLE:
            indent = len(fence["indent"])
            text = "".join(line[indent:] + "\n" for line in lines[first:number])
            found.append(Snippet(RUNNABLE[language], text, first + 1))
        elif language not in NOT_CODE:
            raise ValueError(f"line {first}: do not know whether {language!r} is to be executed")
        number += 1
    return found


def commands_of(console: str) -> list[str]:
    """The commands of a console snippet: its lines after ``$``; without any ``$``, every line.

    A command goes on over lines that end in a backslash; lines without ``$`` are output.
    """
    joined = console.replace("\\\n", " ").splitlines()
    prompted = [line.removeprefix("$ ") for line in joined if line.startswith("$ ")]
    return prompted or [line for line in joined if line.strip() and not line.startswith("#")]

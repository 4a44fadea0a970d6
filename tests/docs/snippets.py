"""The fenced code blocks of a Markdown document."""

import re
from dataclasses import dataclass

RUNNABLE = {"python": "python", "console": "console", "bash": "console", "sh": "console"}
"""Languages whose snippets are executed, with the interpreter of each."""

NOT_CODE = {"", "text", "mermaid", "json", "toml", "yaml", "ini", "dockerfile"}
"""Languages of blocks that are not executed; any other language is an error."""

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>```+) *(?P<language>[^\s`]*) *(?P<framework>[^\s`]*)[^`]*$"
)


@dataclass(frozen=True)
class Snippet:
    """One block of a document.

    Attributes:
        kind: its interpreter.
        text: the code.
        line: line of the document where the code begins.
        framework: the word after the language, a framework that the code needs; "" if none.
    """

    kind: str
    text: str
    line: int
    framework: str = ""


def snippets_of(markdown: str) -> list[Snippet]:
    """Return the executable snippets of a document, in order.

    Raises:
        ValueError: if a block never ends, or its language is in neither RUNNABLE nor NOT_CODE.
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
            found.append(Snippet(RUNNABLE[language], text, first + 1, fence["framework"]))
        elif language not in NOT_CODE:
            raise ValueError(f"line {first}: do not know whether {language!r} is to be executed")
        number += 1
    return found


def commands_of(console: str) -> list[str]:
    """Return the commands of a console snippet: the lines after ``$``, or all lines without any.

    A command continues after a backslash at the end of a line; lines without ``$`` are output.
    """
    joined = console.replace("\\\n", " ").splitlines()
    prompted = [line.removeprefix("$ ") for line in joined if line.startswith("$ ")]
    return prompted or [line for line in joined if line.strip() and not line.startswith("#")]

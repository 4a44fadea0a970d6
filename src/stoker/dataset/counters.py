"""Variables that each call of a function counts up and uses, found in its bytecode."""

import dis
import itertools
from collections.abc import Iterator
from types import CodeType

Line = list[dis.Instruction]


def counters_of(code: CodeType, *, method: bool) -> Iterator[str]:
    """Yield the variables that outlive a call, and that each call updates (``n += 1``) and uses.

    A use is a line that returns or assigns to a local variable: without a use, the variable is a
    statistic, on which no result depends. A variable that is not computed from its own value is a
    cache.

    Args:
        code: of a function.
        method: attributes of its first argument outlive a call, too.
    """
    this = code.co_varnames[0] if method and code.co_argcount else ""
    lines = _lines_of(code)
    for name, kind in dict.fromkeys(_stores(code, lines, this)):
        updated = any(_updates(line, name, kind, this) for line in lines)
        if updated and any(_returns(line, name) for line in lines):
            yield f"`{f'{this}.{name}' if kind == 'ATTR' else name}`, a counter"


def _lines_of(code: CodeType) -> list[Line]:
    lines: dict[int | None, Line] = {}
    for instruction in dis.get_instructions(code):
        # These stand between the load and the store of `self.n += 1` and name no variable.
        if instruction.opname not in ("COPY", "SWAP"):
            line = instruction.positions.lineno if instruction.positions else None
            lines.setdefault(line, []).append(instruction)
    return list(lines.values())


def _stores(code: CodeType, lines: list[Line], this: str) -> Iterator[tuple[str, str]]:
    """Yield the name and kind of the variables that may outlive a call and are assigned."""
    for instruction in itertools.chain(*lines):
        kind = instruction.opname.removeprefix("STORE_")
        name = str(instruction.argval)
        outer = kind == "GLOBAL" or (kind == "DEREF" and name in code.co_freevars)
        if outer or (kind == "ATTR" and this):
            yield name, kind


def _updates(line: Line, name: str, kind: str, this: str) -> bool:
    """Return whether a line computes a variable from its value: ``n += 1`` or ``n = n + 1``."""
    stored = any(i.opname == f"STORE_{kind}" and i.argval == name for i in line)
    if not stored or all(i.opname != "BINARY_OP" for i in line):
        return False
    if kind != "ATTR":
        return any(i.opname == f"LOAD_{kind}" and i.argval == name for i in line)
    return any(
        before.opname.startswith("LOAD_FAST")
        and this in (before.argval if isinstance(before.argval, tuple) else (before.argval,))
        and (after.opname, after.argval) == ("LOAD_ATTR", name)
        for before, after in itertools.pairwise(line)
    )


def _returns(line: Line, name: str) -> bool:
    """Return whether a line loads a variable, and returns or assigns to a local variable."""
    loaded = any(i.opname.startswith("LOAD_") and i.argval == name for i in line)
    return loaded and any(
        i.opname in ("RETURN_VALUE", "YIELD_VALUE") or i.opname.startswith("STORE_FAST")
        for i in line
    )

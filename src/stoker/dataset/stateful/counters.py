"""Variables that each call of a function changes and that its results depend on.

They are found in its bytecode: the instructions are followed in their order, with the variables
that each value on the stack was computed from. A value is forgotten where it is not certain what
becomes of it: as an index, and as an argument of a function that is not known.
"""

import dis
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

from stoker.dataset.stateful.values import Place, Value, added, combined, is_pure, outer_value

_EXTENDS = frozenset({".append", ".appendleft", ".extend", ".insert", ".add"})
_SHRINKS = frozenset({".pop", ".popleft", ".popitem", ".clear", ".remove", ".discard"})

_COMPUTES = ("BUILD_", "FORMAT_", "UNARY_", "COMPARE_OP", "CONVERT_VALUE")
"""Begin the names of instructions whose result depends on all that they take from the stack."""

_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD")
"""Begin the names of instructions after which the next one is not executed."""

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))

_KEEP_TOP = ("POP_", "END_", "DELETE_", "JUMP_IF", "RESUME", "NOP", "NOT_TAKEN", "EXTENDED_ARG")
"""Begin the names of instructions that only remove from the stack, or do nothing."""


def counters_of(
    code: CodeType,
    variables: Mapping[str, Any],
    *,
    method: bool = False,
    defaults: Iterable[str] = (),
) -> Iterator[str]:
    """Yield the variables that outlive a call, that each call changes, and that results depend on.

    A change is ``n += 1`` or ``n = n + x``, or an item that is added to a list or set. A variable
    on which no result depends is a statistic; one not computed from its own value is a cache.

    Args:
        code: of a function.
        variables: the global variables of the function.
        method: attributes of its first argument outlive a call, too.
        defaults: arguments whose default values outlive a call, too.
    """
    outer = {*code.co_freevars, *defaults}
    if method and code.co_argcount:
        outer.add(code.co_varnames[0])
    trace = _Trace(outer, variables)
    instructions = list(dis.get_instructions(code))
    for _ in range(2):  # a loop may use in its second pass what the first has assigned
        trace.follow(instructions)
    for place in trace.counters:
        if place in trace.returned:
            yield f"`{''.join(place)}`, a counter"
    for place in trace.extended:
        if place in trace.returned - trace.shrunk:
            yield f"`{''.join(place)}`, to which each call adds"


class _Trace:
    """The values of a function, followed through its instructions.

    Args:
        outer: local names of variables that outlive a call.
        variables: the global variables.

    Attributes:
        counters: places that are computed from their own value.
        extended: places of lists and sets that each call adds to.
        shrunk: places of lists and sets that items are removed from.
        returned: places that results depend on.
    """

    def __init__(self, outer: set[str], variables: Mapping[str, Any]) -> None:
        self._outer = outer
        self._variables = variables
        self._locals: dict[str, frozenset[Place]] = {}
        self._stack: list[Value] = []
        self._always = True  # every call executes the instruction
        self.counters: dict[Place, None] = {}
        self.extended: dict[Place, None] = {}
        self.shrunk: set[Place] = set()
        self.returned: set[Place] = set()

    def follow(self, instructions: list[dis.Instruction]) -> None:
        """Follow the instructions of the function."""
        self._always = True
        self._stack.clear()
        for each in instructions:
            self._step(each)
            if each.opname.startswith(_ENDS):
                self._stack.clear()
            if each.opname.startswith(_ENDS) or each.opcode in _JUMPS:
                self._always = False

    def _step(self, each: dis.Instruction) -> None:
        name = each.opname
        if name.startswith(("LOAD_FAST", "STORE_FAST")):  # one instruction may do two of these
            names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            kinds = name.replace("_FAST", "_FAST ").split(" ")
            for kind, variable in zip(kinds, names, strict=False):
                self._load(variable) if "LOAD" in kind else self._assign(variable, self._pop())
        elif name == "LOAD_DEREF":
            self._load(each.argval)
        elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
            self._push(each, outer_value((each.argval,)))
        elif name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            self._stack.append(Value(constant=repr(each.argval)))
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            owner = self._pop()
            self._push(each, owner.member(f".{each.argval}"), popped=1)
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and each.argrepr == "[]"):
            self._subscribe(*self._take(2))
        elif name == "BINARY_OP":
            self._stack.append(added(*self._take(2)))
        elif name.startswith("STORE_"):
            self._store(each)
        else:
            self._step_other(each)

    def _step_other(self, each: dis.Instruction) -> None:
        name, stack, count = each.opname, self._stack, each.arg or 0
        if name == "COPY":
            stack.append(stack[-count] if count <= len(stack) else Value())
        elif name == "SWAP":
            if count <= len(stack):
                stack[-count], stack[-1] = stack[-1], stack[-count]
        elif name == "CALL":
            self._call(self._take(count + 2))
        elif name == "CALL_KW":
            self._call(self._take(count + 3))
        elif name in ("RETURN_VALUE", "YIELD_VALUE"):
            self.returned |= self._pop().depends
            stack.append(Value())
        elif name == "DELETE_SUBSCR":
            self.shrunk.add(self._take(2)[0].place)
        elif name.startswith(_COMPUTES):
            stack.append(combined(self._take(1 - _effect(each))))
        elif name not in ("PRECALL", "KW_NAMES", "CACHE"):
            self._forget(each)

    def _forget(self, each: dis.Instruction) -> None:
        """Follow an instruction of which only the size of the stack is known."""
        effect = _effect(each)
        self._take(max(0, -effect))
        if effect <= 0 and self._stack and not each.opname.startswith(_KEEP_TOP):
            self._stack[-1] = Value()
        self._stack += [Value()] * effect

    def _load(self, name: str) -> None:
        if name in self._outer:
            self._stack.append(outer_value((name,)))
        else:
            self._stack.append(Value((name,), depends=self._locals.get(name, frozenset())))

    def _assign(self, name: str, value: Value) -> None:
        self._outer.discard(name)  # an argument, which is no longer its default
        self._locals[name] = value.depends

    def _store(self, each: dis.Instruction) -> None:
        name = each.argval
        if each.opname == "STORE_GLOBAL" or (each.opname == "STORE_DEREF" and name in self._outer):
            self._change((name,), self._pop())
        elif each.opname == "STORE_ATTR":
            value, owner = self._take(2)
            self._store_member(owner, f".{name}", value)
        elif each.opname == "STORE_SUBSCR":
            value, container, key = self._take(3)
            self._store_member(container, key.constant and f"[{key.constant}]", value)
        elif each.opname in ("STORE_DEREF", "STORE_NAME"):
            self._assign(name, self._pop())
        else:
            self._forget(each)

    def _store_member(self, owner: Value, step: str, value: Value) -> None:
        if owner.outer and step:
            self._change((*owner.place, step), value)
        elif owner.place and not owner.outer:
            self._mix(owner.place[0], [value])

    def _mix(self, name: str, values: list[Value]) -> None:
        """Note that a local variable now contains `values`, too."""
        self._locals[name] = self._locals.get(name, frozenset()) | combined(values).depends

    def _change(self, place: Place, value: Value) -> None:
        # What only some calls compute from itself may be a preparation, such as a normalization.
        if place in value.stepped or (self._always and place in value.counted):
            self.counters[place] = None

    def _subscribe(self, container: Value, key: Value) -> None:
        if key.constant:
            self._stack.append(container.member(f"[{key.constant}]"))
        else:  # an item of a table is no result of the whole table
            depends = frozenset() if container.outer else container.depends
            self._stack.append(Value(depends=depends))

    def _call(self, values: list[Value]) -> None:
        called = next((value for value in values[:2] if value.place), Value())
        base, method = called.place[:-1], called.place[-1:] or ("",)
        if base and called.outer:
            if method[0] in _EXTENDS and self._always:
                self.extended[base] = None
            elif method[0] in _SHRINKS:
                self.shrunk.add(base)
        elif base and method[0] in _EXTENDS:
            self._mix(base[0], values[2:])
        pure = called.outer and is_pure(called.place, self._variables)
        self._stack.append(combined(values[2:]) if pure else Value())

    def _push(self, each: dis.Instruction, value: Value, popped: int = 0) -> None:
        """Push a value, and before it what the instruction pushes for a call."""
        self._stack += [Value()] * (_effect(each) + popped - 1)
        self._stack.append(value)

    def _pop(self) -> Value:
        return self._stack.pop() if self._stack else Value()

    def _take(self, count: int) -> list[Value]:
        """Remove the last values from the stack; those that are not known have no place."""
        found = [self._pop() for _ in range(count)]
        return found[::-1]


def _effect(each: dis.Instruction) -> int:
    argument = each.arg if each.opcode >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(each.opcode, argument, jump=False)

"""scan: a function of each element and a state that the function updates."""

from collections.abc import Callable
from typing import Any, ClassVar

from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.stepwise import Stepwise
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, OneInput, declared_spec
from stoker.elements.frozen import fresh, frozen
from stoker.elements.spec import Spec
from stoker.errors import InvalidTypeError


class Scan(OneInput, frozen=True, eq=False, kw_only=True):
    """Calls ``function(state, element)``, which returns the next state and an element.

    Attributes:
        initial_state: state at the start of every epoch.
        function: the user's.
        spec: the element_spec the user declared.
    """

    kind: ClassVar[str] = "scan"
    uncounted: ClassVar[str] = (
        "its elements depend on all elements before; apply it after `distribute`"
    )
    one_to_one: ClassVar[bool] = True
    initial_state: Pickled
    function: Pickled
    spec: Pickled | None = None

    def element_spec(self) -> Spec:
        return declared_spec(self.spec)

    def open(self, context: Context) -> Stream:
        return _ScanStream(context, self, context.open(self.input))


class _ScanStream(Stepwise):
    """Calls the function; a call that fails leaves the state unchanged."""

    def __init__(self, context: Context, node: Scan, stream: Stream) -> None:
        super().__init__(context, node, stream)
        self._function: Callable[..., Any] = node.function.value
        # The next epoch starts with the same value: arrays are read-only, containers are copied.
        (self._state,) = fresh([frozen(node.initial_state.value)])

    def step(self, element: Any) -> Any:
        result = self._function(self._state, element)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise InvalidTypeError(
                f"the function of `scan` must return (new_state, element); it returned {result!r}"
            )
        self._state, found = result
        return found

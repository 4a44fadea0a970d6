"""rejection_resample: drops elements so that classes follow a target distribution."""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.dataset.drawn_seeds import NEW_SALT, Salt
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.random import rng
from stoker.dataset.streams.stepwise import SKIP, Stepwise
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.dataset.unpacking import apply
from stoker.elements.spec import Spec, UnknownSpec
from stoker.errors import InvalidArgumentError, InvalidTypeError

# Number of draws per call; element k of the input has draw k for any number.
_DRAWS = 1024

# Initial count of each class in an estimate, as in tf.data.
_SMOOTHING = 10

# Keeps the ratio of a class that never occurs finite, as in tf.data.
_TINY = float(np.finfo(np.float32).tiny)


class RejectionResample(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields pairs of class and element for the accepted elements.

    An element of class c is accepted with a probability proportional to ``target[c] / initial[c]``,
    the largest being 1; no element is repeated. Element k of the input has the k-th draw.

    Attributes:
        function: the user's; returns the class of an element.
        target_dist: frequencies of the classes in the output.
        initial_dist: frequencies of the classes in the input; None to estimate frequencies from
            the elements read.
        seed: the user's; None for that of the context.
    """

    kind: ClassVar[str] = "rejection_resample"
    keeps_endless: ClassVar[bool] = True
    function: Pickled
    target_dist: tuple[float, ...]
    initial_dist: tuple[float, ...] | None = None
    seed: int | None = None
    salt: Salt = NEW_SALT

    def element_spec(self) -> Spec:
        return (UnknownSpec(), self.input.element_spec())

    def open(self, context: Context) -> Stream:
        return _ResampleStream(self, context, context.open(self.input))


class _ResampleStream(Stepwise):
    def __init__(self, node: RejectionResample, context: Context, stream: Stream) -> None:
        super().__init__(context, node, stream)
        self._function = node.function.value
        self._target = np.asarray(node.target_dist, np.float64)
        self._counts = np.full(len(self._target), _SMOOTHING, np.float64)
        self._accepted: npt.NDArray[np.float64] | None = None
        if node.initial_dist is not None:
            self._accepted = _accepted(self._target, np.asarray(node.initial_dist, np.float64))
        self._generator = rng(context, node, node.seed)
        self._draws: list[float] = []
        self._drawn = 0

    def step(self, element: Any) -> Any:
        drawn = self._next_draw()
        label = apply(self._function, element)
        return (label, element) if self._probability(label) > drawn else SKIP

    def _next_draw(self) -> float:
        """Return the draw of this position; drop the draws of earlier positions that failed."""
        drawn = 0.0
        while self._drawn < self._index:
            if not self._draws:
                self._draws = self._generator.random(_DRAWS)[::-1].tolist()
            drawn = self._draws.pop()
            self._drawn += 1
        return drawn

    def _probability(self, label: Any) -> float:
        try:
            index = int(label.__index__())
        except (AttributeError, TypeError) as error:
            raise InvalidTypeError(self._not_a_class(label)) from error
        if not 0 <= index < len(self._target):
            raise InvalidArgumentError(self._not_a_class(label))
        if self._accepted is not None:
            return float(self._accepted[index])
        # The estimate contains the element that is decided, as in tf.data.
        self._counts[index] += 1
        return float(_accepted(self._target, self._counts / self._counts.sum())[index])

    def _not_a_class(self, label: Any) -> str:
        return (
            f"`class_func` must return a class, an int from 0 to {len(self._target) - 1}, the "
            f"places in `target_dist`; it returned {label!r}"
        )


def _accepted(
    target: npt.NDArray[np.float64], initial: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the probability of accepting each class that accepts the most elements."""
    ratios = target / (initial + _TINY)
    accepted: npt.NDArray[np.float64] = ratios / ratios.max()
    return accepted

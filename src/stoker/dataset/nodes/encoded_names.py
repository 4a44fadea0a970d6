"""Names of files as bytes, for programs that expect names as TensorFlow yields names."""

import os
from typing import Any, ClassVar

import numpy as np

from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.elements.spec import Spec, TensorSpec


class EncodedNames(OneInput, frozen=True, eq=False, kw_only=True):
    """The names of files that the input yields as str, as bytes.

    The node is no `map` with a function, so that the names can be listed on any worker.
    """

    kind: ClassVar[str] = "encoded_names"
    one_to_one: ClassVar[bool] = True

    def element_spec(self) -> Spec:
        return TensorSpec((), np.dtype(object))

    def open(self, context: Context) -> Stream:
        return _EncodedStream(context.open(self.input))


class _EncodedStream(OneInputStream):
    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        return list(map(os.fsencode, self._input.next_chunk(max_elements, max_bytes, lazy)))

    def advance(self, n: int) -> int:
        return self._input.advance(n)

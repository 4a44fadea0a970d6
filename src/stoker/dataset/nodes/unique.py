"""unique: drops elements that equal an earlier element."""

import struct
from typing import Any, ClassVar

import numpy as np

from stoker.dataset.streams.stepwise import SKIP, Stepwise
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.structure import children, field_names, is_leaf
from stoker.errors import InvalidArgumentError

# Longer values are stored as a digest of this many bytes; about 2**128 values are needed for a
# collision.
_DIGEST_BYTES = 32

_FLOAT = np.dtype(np.float64).str


class Unique(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields the elements that equal no earlier element."""

    kind: ClassVar[str] = "unique"

    def open(self, context: Context) -> Stream:
        return _UniqueStream(context, self, context.open(self.input))


class _UniqueStream(Stepwise):
    _calls_user_code = False

    def __init__(self, context: Context, node: Unique, stream: Stream) -> None:
        super().__init__(context, node, stream)
        self._seen: set[Any] = set()

    def step(self, element: Any) -> Any:
        key = element if type(element) is int else _key(element)
        before = len(self._seen)
        self._seen.add(key)
        return SKIP if len(self._seen) == before else element


def _key(value: Any) -> Any:
    """Return a key that is equal for equal values of the same dtype and shape.

    Floats are compared by their bytes. Python's numbers equal NumPy's numbers of 64 bits.
    """
    if not is_leaf(value):
        # With the type's name: a tuple differs from a list; a dict has no order.
        members = [("", type(value).__name__), *children(value)]
        return tuple((name, _key(member)) for name, member in sorted(members))
    if isinstance(value, np.ndarray | np.generic):
        return _array_key(value)
    if isinstance(value, str | bytes):
        return _text_key(value)
    if isinstance(value, bool):
        return ("?", value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return (_FLOAT, struct.pack("d", value))
    if value is None or isinstance(value, complex):
        return (type(value), value)
    if isinstance(value, RaggedArray | SparseArray):
        cls = type(value)
        return (cls, *(_key(getattr(value, name)) for name in field_names(cls)))
    raise InvalidArgumentError(
        f"`unique` compares arrays, numbers and text; the element contains a "
        f"{type(value).__qualname__}: {value!r}; map it to one of these"
    )


def _array_key(array: Any) -> Any:
    if array.dtype == object:
        return (array.shape, tuple(_text_key(item) for item in array.flat))
    if array.ndim:
        return (array.dtype.str, array.shape, _short(array.tobytes()))
    if array.dtype == np.int64:
        # Python's ints equal NumPy's int64 of the same value, also in a set.
        return int(array)
    return ("?", bool(array)) if array.dtype == bool else (array.dtype.str, array.tobytes())


def _text_key(text: Any) -> Any:
    if isinstance(text, str):
        is_short = len(text) <= _DIGEST_BYTES
        return text if is_short else ("str", _short(text.encode(errors="surrogatepass")))
    if text is None or isinstance(text, bytes):
        return (type(text), text if text is None else _short(text))
    raise InvalidArgumentError(
        f"`unique` compares arrays of text, but an array contains a {type(text).__qualname__}: "
        f"{text!r}; convert arrays of numbers to a number dtype in a map before"
    )


def _short(data: bytes) -> bytes:
    if len(data) <= _DIGEST_BYTES:
        return data
    import hashlib  # OpenSSL costs milliseconds at `import stoker`

    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()

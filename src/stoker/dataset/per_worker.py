"""Objects that cannot be pickled, built in the process that uses them."""

import os
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from stoker.dataset.random import building
from stoker.errors import InvalidArgumentError

_T = TypeVar("_T")


class per_worker(Generic[_T]):  # noqa: N801 - used like a function, as functools.partial is
    """An object that `factory` builds once per process: a model, a tokenizer, a handle.

    Only the factory is sent with a dataset. The first use calls the factory, on one thread while
    all further threads wait; after an exception, the next use calls the factory again. The object
    lives as long as a dataset that uses the object. A forked process builds its own object.

    `get` returns the object; calling the `per_worker` calls the object. A parallel map calls from
    several threads concurrently: give ``per_thread=True`` if the object does not allow that.

    Args:
        factory: called without arguments; must be picklable if the dataset is distributed.
        per_thread: build an object per thread instead.

    Raises:
        InvalidArgumentError: if `factory` is not callable.

    Example:
        >>> import re, stoker
        >>> finder = stoker.per_worker(lambda: re.compile(r"[a-z]+"))
        >>> words = stoker.Dataset.from_tensor_slices(["a1b", "c"])
        >>> list(words.map(lambda text: finder.get().findall(text)))
        [['a', 'b'], ['c']]
    """

    def __init__(self, factory: Callable[[], _T], *, per_thread: bool = False) -> None:
        if not callable(factory):
            raise InvalidArgumentError(
                f"`factory` must be a function that builds the object; got {factory!r}"
            )
        self._factory = factory
        self._per_thread = per_thread
        self._key = os.urandom(16).hex()
        self._slot: _Slot | None = None

    def get(self) -> _T:
        """Return the object of this process (or thread)."""
        slot = self._slot
        if slot is None or slot.pid != os.getpid():
            slot = self._slot = _slot_of(self._key, self._per_thread)
        holder = slot.holder
        try:
            built: _T = holder.built
        except AttributeError:
            with slot.lock:
                if not hasattr(holder, "built"):
                    with building():
                        holder.built = self._factory()
                built = holder.built
        return built

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        built: Any = self.get()
        return built(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_slot": None}

    def __repr__(self) -> str:
        return f"stoker.per_worker({self._factory!r})"


class _Slot:
    """The object of a `per_worker` in a process, or its objects by thread."""

    def __init__(self, per_thread: bool) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.holder: Any = threading.local() if per_thread else SimpleNamespace()


# Copies of a `per_worker` (each task unpickles a copy) share the object, by its key.
_slots: "weakref.WeakValueDictionary[str, _Slot]" = weakref.WeakValueDictionary()
_slots_lock = threading.Lock()


def _slot_of(key: str, per_thread: bool) -> _Slot:
    with _slots_lock:
        return _slots.setdefault(key, _Slot(per_thread))


def _forget_inherited() -> None:
    global _slots, _slots_lock
    _slots, _slots_lock = weakref.WeakValueDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget_inherited)

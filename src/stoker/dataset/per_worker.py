"""Things that cannot be pickled, built where they are used."""

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from stoker.errors import InvalidArgumentError

_T = TypeVar("_T")


class per_worker(Generic[_T]):  # noqa: N801 - used like a function, as functools.partial is
    """What `factory` builds, once in each process that uses it: a model, a tokenizer, a handle.

    Only the factory travels with a dataset. It is called at the first use, by one thread while the
    others wait; if it raises, the next use calls it again. What it built lives as long as a dataset
    that uses it. A forked process builds its own.

    Called, it calls what was built; `get` returns it. Calls of a parallel map come from several
    threads at once: give ``per_thread=True`` if what is built does not allow that.

    Args:
        factory: takes no arguments; must be picklable if the dataset is distributed.
        per_thread: build one for each thread instead.

    Raises:
        InvalidArgumentError: `factory` cannot be called.

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
                f"`factory` must be a function that builds what each worker uses; got {factory!r}"
            )
        self._factory = factory
        self._per_thread = per_thread
        self._key = os.urandom(16).hex()
        self._place: _Place | None = None

    def get(self) -> _T:
        """What was built for this process (or thread)."""
        place = self._place
        if place is None or place.pid != os.getpid():
            place = self._place = _place_of(self._key, self._per_thread)
        holder = place.holder
        try:
            built: _T = holder.built
        except AttributeError:
            with place.lock:
                if not hasattr(holder, "built"):
                    holder.built = self._factory()
                built = holder.built
        return built

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        built: Any = self.get()
        return built(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_place": None}

    def __repr__(self) -> str:
        return f"stoker.per_worker({self._factory!r})"


class _Holder:
    built: Any


class _Place:
    """Where a process keeps what one `per_worker` built."""

    def __init__(self, per_thread: bool) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.holder: Any = threading.local() if per_thread else _Holder()


# Copies of one `per_worker` (a task unpickles one each) share what was built, by its key.
_places: "weakref.WeakValueDictionary[str, _Place]" = weakref.WeakValueDictionary()
_places_lock = threading.Lock()


def _place_of(key: str, per_thread: bool) -> _Place:
    with _places_lock:
        place = _places.get(key)
        if place is None:
            place = _places[key] = _Place(per_thread)
        return place


def _forget_inherited() -> None:
    global _places, _places_lock
    _places, _places_lock = weakref.WeakValueDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget_inherited)

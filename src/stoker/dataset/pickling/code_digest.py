"""Digests of user functions, equal in every process that runs the same code; their classes."""

import hashlib
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from stoker.dataset.drawn_seeds import DrawnSeeds
from stoker.dataset.pickling.pickler import Pickler
from stoker.dataset.pickling.record_classes import record_classes_in

_DIGEST_BYTES = 16


class Code(NamedTuple):
    """Properties of a function with all its references.

    Attributes:
        digest: changes with the code, the captured values and the functions and classes called, not
            with line numbers, nor with the drawn seeds of captured datasets. As everything pickled,
            a set or an object that names its memory address differs between processes.
        record_classes: the namedtuple and dataclass classes among the references.
    """

    digest: str
    record_classes: tuple[type, ...]


def inspect_code(value: Any) -> Code:
    """Return the digest and the record classes of a function with all its references.

    Raises:
        Exception: if the value cannot be pickled.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    file = SimpleNamespace(write=digest.update)
    # Arrays are hashed from their memory: a callback without a result keeps them out of the file.
    pickler = _CodePickler(file, protocol=5, buffer_callback=lambda data: digest.update(data.raw()))
    pickler.dump(value)
    return Code(digest.hexdigest(), tuple(pickler.record_classes))


def bytes_digest(data: bytes) -> str:
    """Return a digest of bytes."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


class _CodePickler(Pickler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record_classes: dict[type, None] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType):
            self.record_classes.update(dict.fromkeys(record_classes_in(obj)))
        if isinstance(obj, DrawnSeeds):
            return DrawnSeeds, ()
        if isinstance(obj, CodeType):
            names = (obj.co_names, obj.co_varnames, obj.co_freevars, obj.co_cellvars)
            arguments = (obj.co_argcount, obj.co_posonlyargcount, obj.co_kwonlyargcount)
            code = (obj.co_name, obj.co_code, obj.co_exceptiontable, obj.co_consts)
            return tuple, ([*code, *names, *arguments],)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type | FunctionType) and isinstance(reduced, tuple):
            make, arguments, *rest = reduced
            if isinstance(obj, FunctionType):
                rest = [_without_submodules(part) for part in rest]
            return make, tuple(map(_without_place, arguments)), *rest
        return reduced


def _without_place(argument: Any) -> Any:
    """Return None for what differs between processes, of what a function or class is made from.

    cloudpickle gives each class pickled by value a random id of 32 digits, and each
    function the ``__file__`` of its module.
    """
    is_id = isinstance(argument, str) and len(argument) == 32
    return None if is_id or (isinstance(argument, dict) and "__file__" in argument) else argument


def _without_submodules(part: Any) -> Any:
    """Return a function's state without the submodules that this process happens to have loaded.

    cloudpickle adds those, such as ``numpy.random``, whose name the function uses.
    """
    if not isinstance(part, tuple):
        return part
    return tuple(
        {key: value for key, value in variables.items() if key != "_cloudpickle_submodules"}
        for variables in part
    )

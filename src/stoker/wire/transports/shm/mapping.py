"""Memory shared between processes: mapped, sealed memfds."""

import ctypes
import fcntl
import mmap
import os
from collections import deque
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from stoker.errors import WireError
from stoker.wire.buffers import lend
from stoker.wire.transports import forking

Memory: TypeAlias = npt.NDArray[np.uint8]
Item = TypeVar("Item")

# Only Linux defines these; elsewhere this package can be imported but not used.
_SHRINK, _GROW, _SEAL, _WRITE = (
    getattr(fcntl, f"F_SEAL_{name}", 0) for name in ("SHRINK", "GROW", "SEAL", "WRITE")
)
_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value

_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]


class Mapping:
    """A memfd mapped for reading and writing until this object and all its views are freed.

    In a forked child the mapping becomes a private copy-on-write mapping.

    Args:
        descriptor: of the memfd; owned by this object, also when this raises.
        size: of the memfd in bytes, or less.

    Attributes:
        descriptor: of the memfd, to be sent to clients.
        memory: the mapped bytes.
        address: of the first byte.

    Raises:
        OSError: if the memfd cannot be mapped.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.memory: Memory = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        self.address: int = self.memory.__array_interface__["data"][0]
        forking.watch(self)

    def lend(self, start: int, size: int, freed: "deque[Item]", item: Item) -> memoryview:
        """Return a view of a range; `item` is appended to `freed` when the last view is freed."""
        # The mapping must live as long as the view: a forked child maps the memory again.
        return lend(self.memory[start : start + size], partial(_append_freed, freed, item, self))

    def __del__(self) -> None:
        os.close(self.descriptor)

    def before_fork(self) -> None:
        """Do nothing: a mapping needs no lock."""

    def after_fork_in_parent(self) -> None:
        """Do nothing: the parent keeps the shared mapping."""

    def after_fork_in_child(self) -> None:
        """Replace the shared by a private mapping, at the same address for existing views."""
        # Python's mmap cannot map at a given address, which the views of the child need.
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
        size = self.memory.nbytes
        if _mmap(self.address, size, protection, flags, self.descriptor, 0) == _FAILED:
            raise OSError(ctypes.get_errno(), "cannot make shared memory private after fork")


def _append_freed(freed: "deque[Item]", item: Item, _mapping: Mapping) -> None:
    freed.append(item)


def new_mapping(size: int) -> Mapping:
    """Return a new mapped memfd of `size` bytes, sealed against shrinking under its readers.

    Raises:
        OSError: if memory or descriptors are exhausted, or this system has no memfd.
    """
    descriptor = os.memfd_create("stoker-segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        # A read beyond the end of a shrunk memfd would kill the reader by SIGBUS.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SHRINK | _GROW | _SEAL)
    except OSError:
        os.close(descriptor)
        raise
    return Mapping(descriptor, size)


def received_mapping(descriptor: int, size: int) -> Mapping:
    """Map a segment of `size` bytes that a peer sent; own `descriptor`.

    Raises:
        WireError: if the segment is not sealed or shorter than `size`: reading could kill this
            process.
        OSError: if the segment cannot be mapped in this process.
    """
    try:
        _check(descriptor, size)
    except WireError:
        os.close(descriptor)
        raise
    return Mapping(descriptor, size)


def _check(descriptor: int, size: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as error:
        raise WireError(f"the received segment is no memfd: {error}") from error
    if not seals & _SHRINK or seals & _WRITE:
        raise WireError(
            f"the received segment has seals {seals:#x}: it could shrink while it is read"
        )
    actual = os.fstat(descriptor).st_size
    if not 0 < size <= actual:
        raise WireError(f"the received segment is claimed to have {size} bytes but has {actual}")

"""The global generators of Python, NumPy and PyTorch, seeded for each call of a user function."""

import hashlib
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

lock = threading.RLock()
"""Held over each call for which the generators are seeded: a process has a single set."""

_is_worker_process = False


def enter_worker_process() -> None:
    """Let tasks seed the generators of this process, which runs a worker and no other program."""
    global _is_worker_process
    _is_worker_process = True


def is_worker_process() -> bool:
    """Return whether tasks may seed the generators, which in a trainer belong to the model."""
    return _is_worker_process


def seed_generators(*key: int) -> None:
    """Seed the generators by a key, including PyTorch's (for the CPU) if PyTorch is loaded.

    A hash and three seeds take 8 us; `numpy.random.SeedSequence` alone would take 8 more.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little")
    random.seed(seed)
    # NumPy accepts 32 bits only.
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 - the generator that functions use
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        generator.manual_seed(seed >> 1)


@contextmanager
def seeded_apart(*key: int) -> Iterator[None]:
    """Seed the generators for a ``with`` block within a call, which then continues its draws."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    torch = None if generator is None else generator.get_state()
    seed_generators(*key)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if generator is not None:
            generator.set_state(torch)

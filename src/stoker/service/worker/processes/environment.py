"""Environment variables of worker processes."""

import os

HASH_SEED = b"0"
"""Seed of Python's hashes in all worker processes, unless the user has set one."""


# A set of text is iterated in the order of its hashes. Elements that two workers compute for one
# position must be equal, also on two machines.
def worker_environment() -> dict[bytes, bytes]:
    """Return the variables of a new worker process: those of this process, and a seed of hashes.

    ``PYTHONHASHSEED`` is that of this process if it is set, also if it is "random".
    """
    return {b"PYTHONHASHSEED": HASH_SEED, **os.environb}

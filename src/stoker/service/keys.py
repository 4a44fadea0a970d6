"""Keys that prove which task, client or worker a peer is, and which positions a journal had.

Each task, client and worker has a random key, recorded with the id. Ids are sequential and can be
guessed; keys cannot.
"""

import hashlib
import hmac
from typing import NamedTuple

KEY_BYTES = 16


class WorkerIdentity(NamedTuple):
    """The id of a worker at its dispatcher, and the key that proves the id."""

    worker_id: int
    key: bytes


# Ids are sequential, keys are not: without a key a stranger who counts ids could take elements of
# another job. (docs/decisions/065)
def reader_key(task_key: bytes, client_id: int) -> bytes:
    """Return the key with which a client reads a task, computable only with `task_key`.

    A worker computes the key when the client connects, and need not be told of each client.
    """
    text = f"reader {client_id}".encode()
    return hashlib.blake2b(text, key=task_key, digest_size=KEY_BYTES).digest()


def position_signature(key: bytes, journal_id: str, boot: int, position: int) -> bytes:
    """Return the signature of a position in the journal of a dispatcher."""
    text = f"position {journal_id} {boot} {position}".encode()
    return hmac.digest(key, text, "sha256")[:KEY_BYTES]


def are_equal(key: bytes, other: bytes) -> bool:
    """Compare keys in a time that does not depend on the keys."""
    return hmac.compare_digest(key, other)

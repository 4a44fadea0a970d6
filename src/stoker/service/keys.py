"""Keys that prove to a worker or dispatcher which task, client or worker a peer is.

All are derived from one secret of the dispatcher, so none is stored. Ids are sequential and can be
guessed; a key cannot.
"""

import hashlib
import hmac

KEY_BYTES = 16


def derived_key(key: bytes, name: str, number: int) -> bytes:
    """Return the key of `name` `number`, which only a holder of `key` can compute."""
    return hashlib.blake2b(f"{name} {number}".encode(), key=key, digest_size=KEY_BYTES).digest()


def reader_key(task_key: bytes, client_id: int) -> bytes:
    """Return the key with which a client reads a task."""
    return derived_key(task_key, "reader", client_id)


def are_equal(key: bytes, other: bytes) -> bool:
    """Compare keys in a time that does not depend on them."""
    return hmac.compare_digest(key, other)

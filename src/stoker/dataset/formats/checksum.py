"""Checksum of TFRecord files: CRC-32C, masked because data may contain CRC-32C checksums itself."""

from collections.abc import Callable

from stoker.errors import FailedPreconditionError

MASK_DELTA = 0xA282EAD8


def load_crc32c() -> Callable[[bytes], int]:
    """Return the function that computes CRC-32C.

    Raises:
        FailedPreconditionError: if google-crc32c is not installed.
    """
    try:
        import google_crc32c
    except ImportError as error:
        raise FailedPreconditionError(
            "TFRecord files are checked with google-crc32c, which is not installed here; run "
            "`pip install 'stoker[tfrecord]'`"
        ) from error
    value: Callable[[bytes], int] = google_crc32c.value
    return value


def masked(crc: int) -> int:
    """Return a checksum in the form of TFRecord files."""
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF

"""The checksum of TFRecord files: CRC-32C, masked so that data may hold checksums of its own."""

from collections.abc import Callable

from stoker.errors import FailedPreconditionError

MASK_DELTA = 0xA282EAD8


def load_crc32c() -> Callable[[bytes], int]:
    """The function that computes CRC-32C.

    Raises:
        FailedPreconditionError: google-crc32c is not installed.
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
    """A checksum as it stands in a file."""
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF

"""`tf.io.TFRecordWriter`."""

from typing import Any

from stoker.compat.tf.missing import missing


def __getattr__(name: str) -> Any:
    if name == "TFRecordWriter":
        # The package for its checksums is optional.
        from stoker.dataset.formats.tfrecord_writer import TFRecordWriter

        return TFRecordWriter
    raise missing("tf.io", name)

"""tf.data.experimental.TFRecordWriter: writes the elements of a dataset."""

import os
from typing import Any

from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.dataset.formats.opening import checked_compression
from stoker.elements.spec import TensorSpec, UnknownSpec
from stoker.errors import InvalidTypeError


class TFRecordWriter:
    """Writes the elements of a dataset to a TFRecord file.

    As `tf.data.experimental.TFRecordWriter`; `tf.io.TFRecordWriter` writes single records.

    Args:
        filename: the file, which is replaced.
        compression_type: as for `stoker.TFRecordWriter`.

    Raises:
        InvalidArgumentError: if `compression_type` is not valid.

    Example:
        >>> import tempfile
        >>> from stoker.compat import tf
        >>> words = tf.data.Dataset.from_tensor_slices(["one", "two"])
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     tf.data.experimental.TFRecordWriter(file.name).write(words)
        ...     list(tf.data.TFRecordDataset(file.name))
        [b'one', b'two']
    """

    def __init__(
        self, filename: str | bytes | os.PathLike[Any], compression_type: str | None = None
    ) -> None:
        self._filename = os.fsdecode(filename)
        self._compression = checked_compression(compression_type)

    def write(self, dataset: StokerDataset) -> None:
        """Read an epoch and write each element as a record.

        Args:
            dataset: its elements are text or bytes; text is written as UTF-8.

        Raises:
            InvalidTypeError: if `dataset` is not a Dataset, or an element is neither.
        """
        from stoker.dataset.formats.tfrecord_writer import TFRecordWriter as RecordWriter

        if not isinstance(dataset, StokerDataset):
            raise InvalidTypeError(
                f"Invalid `dataset.` Expected a `tf.data.Dataset` object but got {type(dataset)}."
            )
        spec = dataset.element_spec
        # Checked before the file is replaced, if the spec is known.
        if not isinstance(spec, UnknownSpec) and spec != TensorSpec((), object):
            raise _not_text(f"with the element_spec {spec!r}")
        with (
            dataset.iterator() as elements,
            RecordWriter(self._filename, self._compression) as writer,
        ):
            for element in elements:
                if not isinstance(element, str | bytes):
                    raise _not_text(f"such as {element!r:.200}")
                writer.write(element.encode() if isinstance(element, str) else element)


def _not_text(what: str) -> InvalidTypeError:
    return InvalidTypeError(
        "Invalid `dataset`. Expected a `dataset` that produces scalar `tf.string` elements, but "
        f"got a dataset which produces elements {what}."
    )

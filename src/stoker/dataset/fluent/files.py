"""The fluent API: records of files."""

import codecs
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.filenames import Filenames, paths_node
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.formats.opening import checked_compression
from stoker.dataset.iterator import T_co
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import AUTOTUNE, Node
from stoker.errors import InvalidArgumentError, InvalidTypeError

if TYPE_CHECKING:
    import stoker
    from stoker.dataset.formats.csv import Csv
    from stoker.dataset.formats.fixed_length import FixedLength
    from stoker.dataset.formats.text import Text
    from stoker.dataset.formats.tfrecord import TFRecord

# The number of files that `num_parallel_reads=AUTOTUNE` reads in turn.
_AUTOTUNE_FILES = 16


class Files(Fluent[T_co]):
    """Class methods that read records from files."""

    @classmethod
    def text_lines(
        cls,
        filenames: Filenames,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        *,
        encoding: str | None = "utf-8",
    ) -> "stoker.Dataset[Any]":
        r"""Yield the lines of text files, without their line ends.

        A line ends with ``\n`` or ``\r\n``; the end of the last line may be missing. A byte order
        mark is part of the first line. The workers of a service share a large uncompressed file, in
        parts. As `tf.data.TextLineDataset`.

        Args:
            filenames: a path, lists or arrays of paths, nested or not, or a dataset of paths; paths
                with ``://`` are read by fsspec.
            compression_type: ``None`` or ``""``, ``"GZIP"`` or ``"ZLIB"``.
            num_parallel_reads: number of files read in turn, on threads; ``None`` reads one file
                after the other.
            encoding: encoding of the files, in which a newline must be a single byte; ``None``
                yields bytes.

        Raises:
            InvalidTypeError: if `filenames` is not of paths.
            InvalidArgumentError: if an argument is out of range; when read, at the position of a
                line that cannot be decoded.
            NotFoundError: when read, at the position of its lines, if a file does not exist.
            DataLossError: when read, if compressed data is corrupt or truncated.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = Path(folder, "a.txt")
            ...     _ = path.write_text("one\ntwo\n")
            ...     list(Dataset.text_lines(path))
            ['one', 'two']
        """
        # Formats are imported when used, so that `import stoker` stays fast. (docs/decisions/085)
        from stoker.dataset.formats.text import Text

        layout = Text(encoding=_encoding(encoding))
        return cls._records(filenames, layout, compression_type, num_parallel_reads)

    @classmethod
    def tfrecords(
        cls,
        filenames: Filenames,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
    ) -> "stoker.Dataset[bytes]":
        """Yield the records of TFRecord files, as bytes.

        Both checksums of each record are verified. After a record whose data is corrupt, reading
        continues with the next record; after a corrupt length, with the next file. The workers of a
        service share a large uncompressed local file, in parts. As `tf.data.TFRecordDataset`.

        Args:
            filenames: a path, lists or arrays of paths, nested or not, or a dataset of paths; paths
                with ``://`` are read by fsspec.
            compression_type: ``None`` or ``""``, ``"GZIP"`` or ``"ZLIB"``.
            num_parallel_reads: number of files read in turn, on threads; ``None`` reads one file
                after the other.

        Raises:
            InvalidTypeError: if `filenames` is not of paths.
            InvalidArgumentError: if an argument is out of range.
            FailedPreconditionError: when read, if google-crc32c is not installed.
            NotFoundError: when read, at the position of its records, if a file does not exist.
            DataLossError: when read, at the position of a record that is corrupt or truncated.

        Example:
            >>> import tempfile
            >>> with tempfile.NamedTemporaryFile() as file:
            ...     with stoker.TFRecordWriter(file.name, "GZIP") as writer:
            ...         writer.write(b"one")
            ...     list(Dataset.tfrecords(file.name, "GZIP"))
            [b'one']
        """
        from stoker.dataset.formats.tfrecord import TFRecord

        return cls._records(filenames, TFRecord(), compression_type, num_parallel_reads)

    @classmethod
    def fixed_length_records(
        cls,
        filenames: Filenames,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
    ) -> "stoker.Dataset[bytes]":
        """Yield records of `record_bytes` bytes each, as bytes.

        The workers of a service share a large uncompressed file, in parts. As
        `tf.data.FixedLengthRecordDataset`.

        Args:
            filenames: a path, lists or arrays of paths, nested or not, or a dataset of paths; paths
                with ``://`` are read by fsspec.
            record_bytes: length of a record in bytes, at least 1.
            header_bytes: bytes to skip at the start of each file, 0 or more; ``None`` is 0.
            footer_bytes: bytes to skip at its end, 0 or more; ``None`` is 0.
            compression_type: ``None`` or ``""``, ``"GZIP"`` or ``"ZLIB"``.
            num_parallel_reads: number of files read in turn, on threads; ``None`` reads one file
                after the other.

        Raises:
            InvalidTypeError: if `filenames` is not of paths.
            InvalidArgumentError: if an argument is out of range; when read, if the length of a
                file is not a multiple of `record_bytes`, before any of its records.
            NotFoundError: when read, at the position of its records, if a file does not exist.
            DataLossError: when read, if a compressed file is corrupt or truncated, after the
                records before that place.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = Path(folder, "pairs")
            ...     _ = path.write_bytes(b"#aabbcc")
            ...     list(Dataset.fixed_length_records(path, 2, header_bytes=1))
            [b'aa', b'bb', b'cc']
        """
        from stoker.dataset.formats.fixed_length import FixedLength

        layout = FixedLength(
            record_bytes=arguments.size("record_bytes", record_bytes),
            header_bytes=_length("header_bytes", header_bytes),
            footer_bytes=_length("footer_bytes", footer_bytes),
        )
        return cls._records(filenames, layout, compression_type, num_parallel_reads)

    @classmethod
    def csv(
        cls,
        filenames: Filenames,
        record_defaults: Sequence[Any],
        compression_type: str | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
    ) -> "stoker.Dataset[Any]":
        r"""Yield the rows of CSV files, as tuples.

        A row ends with ``\n``, ``\r\n`` or ``\r``; a quoted field may contain these, delimiters,
        and quotes, written twice. A field that is empty or equals `na_value` is missing. As
        `tf.data.experimental.CsvDataset`.

        Args:
            filenames: a path, lists or arrays of paths, nested or not, or a dataset of paths; paths
                with ``://`` are read by fsspec.
            record_defaults: for each column its type, if a field is required (``str``, ``bytes``,
                ``int``, ``float`` or a NumPy dtype), or the value of a missing field, which
                determines the type. Text is UTF-8. NumPy dtypes yield NumPy scalars.
            compression_type: ``None`` or ``""``, ``"GZIP"`` or ``"ZLIB"``.
            header: skip the first row of each file.
            field_delim: the ASCII character between fields.
            use_quote_delim: interpret quotes; False makes quotes ordinary characters.
            na_value: text of a missing field, besides an empty field.
            select_cols: numbers of the columns to read, from 0, ascending; ``None``: all, and a row
                must have no further columns.
            exclude_cols: numbers of the columns not to read, likewise; a row must have no columns
                besides these and the columns of `record_defaults`.

        Raises:
            InvalidTypeError: if `filenames` is not of paths.
            InvalidArgumentError: if an argument is out of range; when read, at the position of a
                row that does not match `record_defaults`.
            NotFoundError: when read, at the position of its rows, if a file does not exist.
            DataLossError: when read, if compressed data is corrupt or truncated.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = Path(folder, "a.csv")
            ...     _ = path.write_text('name,size\n"b, c",2\nd,\n')
            ...     list(Dataset.csv(path, [str, 7.5], header=True))
            [('b, c', 2.0), ('d', 7.5)]
        """
        from stoker.dataset.formats.csv import Csv
        from stoker.dataset.formats.csv_columns import column_of, positions_read

        if isinstance(record_defaults, str | bytes) or not isinstance(record_defaults, Sequence):
            raise InvalidTypeError(
                "`record_defaults` must be a list with an entry per column; got "
                f"{record_defaults!r}"
            )
        columns = tuple(
            column_of(default, f"record_defaults[{i}]") for i, default in enumerate(record_defaults)
        )
        if not columns:
            raise InvalidArgumentError(
                "`record_defaults` must have at least one entry; got an empty list"
            )
        positions, max_fields = positions_read(len(columns), select_cols, exclude_cols)
        layout = Csv(
            columns=columns,
            header=arguments.flag("header", header),
            field_delim=_delimiter(field_delim),
            use_quote_delim=arguments.flag("use_quote_delim", use_quote_delim),
            na_value=_text("na_value", na_value),
            positions=positions,
            max_fields=max_fields,
        )
        return cls._records(filenames, layout, compression_type, None)

    @classmethod
    def _records(
        cls,
        filenames: Filenames,
        layout: "Text | TFRecord | FixedLength | Csv",
        compression_type: str | None,
        num_parallel_reads: int | None,
    ) -> Any:
        compression = checked_compression(compression_type)
        paths = paths_node(filenames)
        if num_parallel_reads is None:
            node: Node = nodes.Records(input=paths, format=layout, compression=compression)
        else:
            count = arguments.size_or_autotune("num_parallel_reads", num_parallel_reads)
            node = nodes.Interleave(
                input=paths,
                function=Pickled.of(partial(_records_of_one, cls, layout, compression)),
                cycle_length=_AUTOTUNE_FILES if count == AUTOTUNE else count,
                num_parallel_calls=count,
                spec=Pickled.of(layout.element_spec()),
            )
        if isinstance(filenames, Fluent):
            return filenames._append(node)
        return cls._source(replace(node, site=call_site()))


def _records_of_one(cls: type[Files[Any]], layout: Any, compression: str, path: Any) -> Files[Any]:
    """Return the dataset of a file; `num_parallel_reads` interleaves these datasets."""
    node = nodes.Tensors(value=Pickled.of(path))
    return cls._source(nodes.Records(input=node, format=layout, compression=compression))


def _encoding(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        # Lines are searched in bytes, before any text is decoded.
        name = codecs.lookup(value).name
        fits = "\n".encode(name) == b"\n"
    except (LookupError, TypeError) as error:
        raise InvalidTypeError(
            f"`encoding` must be the name of an encoding, or None for bytes; got {value!r}"
        ) from error
    if not fits:
        raise InvalidArgumentError(
            f"`encoding` must represent a newline as the byte 10; got {value!r}; read such files "
            "with list_files and map"
        )
    return name


def _length(name: str, value: int | None) -> int:
    given = 0 if value is None else value
    return arguments.integer(name, given, minimum=0, what="an int of 0 or more")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidTypeError(f"`{name}` must be a str; got {value!r}")
    return value


def _delimiter(value: Any) -> str:
    delimiter = _text("field_delim", value)
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise InvalidArgumentError(
            "`field_delim` must be one ASCII character, neither a quote nor a line end; got "
            f"{value!r}"
        )
    return delimiter

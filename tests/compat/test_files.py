"""tf.data's file datasets: TensorFlow's arguments, and bytes."""

import gzip
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.compat import tf
from stoker.dataset.formats import parts
from stoker.dataset.tree.splits import ListedSplits
from tests.serving import Service, outcomes


def elements(dataset):
    return list(dataset.as_numpy_iterator())


@pytest.fixture
def lines(tmp_path):
    for name, text in (("a.txt", "one\ntwo\n"), ("b.txt", "dréi")):
        (tmp_path / name).write_text(text)
    return [str(tmp_path / name) for name in ("a.txt", "b.txt")]


def test_lines_of_text_are_bytes(lines):
    expected = [b"one", b"two", "dréi".encode()]
    assert elements(tf.data.TextLineDataset(lines, name="lines")) == expected
    assert elements(tf.data.TextLineDataset(lines, None, 100)) == expected
    assert tf.data.TextLineDataset(lines).element_spec == tf.TensorSpec((), tf.string)


def test_file_names_may_come_from_a_dataset(lines):
    expected = [b"one", b"two", "dréi".encode()]
    listed = tf.data.Dataset.from_tensor_slices(lines)
    assert elements(tf.data.TextLineDataset(listed)) == expected
    assert elements(tf.data.TextLineDataset(stoker.Dataset.from_tensor_slices(lines))) == expected
    assert elements(listed.flat_map(tf.data.TextLineDataset)) == expected
    assert sorted(elements(listed.interleave(tf.data.TextLineDataset))) == sorted(expected)


def test_files_are_interleaved_by_num_parallel_reads(lines):
    dataset = tf.data.TextLineDataset(lines, num_parallel_reads=2)
    assert elements(dataset) == [b"one", "dréi".encode(), b"two"]


def test_listed_files_can_be_read(lines, tmp_path):
    files = tf.data.Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    assert len(elements(tf.data.TextLineDataset(files))) == 3


def test_workers_share_parts_of_listed_files(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "part_bytes_of", lambda total: 10)
    expected = []
    for name in ("caf\udce9", "b"):
        (tmp_path / name).write_text("".join(f"{name!a} {i}\n" for i in range(50)))
        expected += [f"{name!a} {i}".encode() for i in range(50)]
    listed = tf.data.Dataset.list_files(f"{tmp_path}/*").shuffle(5)
    dataset = tf.data.TextLineDataset(listed)
    assert dataset.node.splits() == ListedSplits()
    with Service(2) as service:
        processing = tf.data.experimental.service.distribute("distributed_epoch", service.target)
        assert sorted(elements(dataset.apply(processing))) == sorted(expected)


def test_records_written_are_read(tmp_path):
    path = str(tmp_path / "records")
    with tf.io.TFRecordWriter(path) as writer:
        for record in (b"one", b"", b"two"):
            writer.write(record)
    assert elements(tf.data.TFRecordDataset([path])) == [b"one", b"", b"two"]
    assert elements(tf.data.TFRecordDataset(path, "", 100, 1)) == [b"one", b"", b"two"]


def test_compressed_records_are_read(tmp_path):
    path = tmp_path / "pairs.gz"
    path.write_bytes(gzip.compress(b"#aabbcc!"))
    dataset = tf.data.FixedLengthRecordDataset(
        str(path), 2, header_bytes=1, footer_bytes=1, compression_type="GZIP"
    )
    assert elements(dataset) == [b"aa", b"bb", b"cc"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("name,size,price\nx,1,0.5\ny,,\n")
    return str(path)


def test_rows_have_tensorflows_types(table):
    defaults = [tf.string, 7, [0.25]]
    rows = elements(tf.data.experimental.CsvDataset(table, defaults, header=True))
    assert rows == [(b"x", 1, 0.5), (b"y", 7, 0.25)]
    assert [value.dtype for value in rows[1][1:]] == [np.int32, np.float32]


def test_columns_may_be_required(table):
    defaults = [tf.string, np.array([], np.int64), tf.float32]
    with iter(tf.data.experimental.CsvDataset(table, defaults, header=True)) as rows:
        found = outcomes(rows)
    assert found[0] == (b"x", 1, 0.5)
    assert [type(row) for row in found[1:]] == [tf.errors.InvalidArgumentError]


def test_columns_may_be_excluded(table):
    dataset = tf.data.experimental.CsvDataset(
        table, ["", np.float64(0)], header=True, exclude_cols=[1]
    )
    assert elements(dataset) == [(b"x", 0.5), (b"y", 0)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Either select_cols or"):
        tf.data.experimental.CsvDataset(table, [""], select_cols=[0], exclude_cols=[1])
    defaults: list[Any] = [[[0]], [0, 1], [[]], np.zeros((1, 1), np.int32)]
    for default in defaults:
        with pytest.raises(tf.errors.InvalidArgumentError, match="at most one value"):
            tf.data.experimental.CsvDataset(table, [default])
    dataset = tf.data.experimental.CsvDataset(table, [""], header=True, exclude_cols=[1])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="Expect 1 fields but have more in record"
    ):
        list(dataset)


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_dataset_is_written_to_a_tfrecord_file(tmp_path, compression):
    path = tmp_path / "a.tfrecord"
    writer = tf.data.experimental.TFRecordWriter(str(path), compression)
    for words in (["é", "b"], ["c"]):  # an existing file is replaced
        writer.write(tf.data.Dataset.from_tensor_slices(words))
        assert elements(tf.data.TFRecordDataset(path, compression)) == [w.encode() for w in words]
    writer.write(tf.data.Dataset.range(2).map(str))
    assert elements(tf.data.TFRecordDataset(path, compression)) == [b"0", b"1"]


@pytest.mark.parametrize(
    "dataset",
    [
        "whoops",
        tf.data.Dataset.range(3),
        tf.data.Dataset.from_tensors(["a", "b"]),
        tf.data.Dataset.range(3).map(lambda x: x),
    ],
    ids=str,
)
def test_only_scalar_text_is_written(tmp_path, dataset):
    path = tmp_path / "a.tfrecord"
    with pytest.raises(TypeError, match=r"Invalid `dataset.*Expected a"):
        tf.data.experimental.TFRecordWriter(path).write(dataset)


@pytest.mark.parametrize(
    ("filenames", "words"),
    [
        ([1, 2], "elements. Got `tf.int32` elements."),
        (0, "elements. Got `tf.int32` elements."),
        (tf.data.Dataset.range(3), "elements. Got a dataset of `tf.int64` elements."),
        (
            tf.data.Dataset.from_tensors(["a"]),
            r"elements of shape \[\] \(i.e. scalars\). Got a dat",
        ),
        (tf.data.Dataset.from_tensors(("a", "b")), "must be a path, a list of paths or a dataset"),
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        tf.data.TextLineDataset,
        tf.data.TFRecordDataset,
        lambda names: tf.data.FixedLengthRecordDataset(names, 4),
        lambda names: tf.data.experimental.CsvDataset(names, [""]),
    ],
)
def test_what_are_no_names_is_refused_in_tensorflows_words(read, filenames, words):
    with pytest.raises(TypeError, match=rf"`filenames` .*{words}"):
        read(filenames)
    assert elements(read([])) == []

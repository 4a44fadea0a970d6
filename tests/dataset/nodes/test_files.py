"""list_files."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker import Dataset
from stoker.dataset.nodes import ListFiles
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context, number
from stoker.dataset.tree.splits import ListedSplits
from stoker.errors import NotFoundError
from tests.dataset.splits import ScriptedSplits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "c.txt", "x.bin", "deep/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(dataset: Dataset) -> list[str]:
    return [Path(path).name for path in dataset]


def test_unshuffled_files_are_sorted_strs(folder: Path) -> None:
    dataset = Dataset.list_files(f"{folder}/*.txt", shuffle=False)
    assert list(dataset) == [str(folder / name) for name in ("a.txt", "b.txt", "c.txt")]


def test_patterns_paths_and_recursive_patterns(folder: Path) -> None:
    several = Dataset.list_files([folder / "*.bin", f"{folder}/a.txt"], shuffle=False)
    assert names(several) == ["a.txt", "x.bin"]
    assert len(names(Dataset.list_files(f"{folder}/**/*.txt"))) == 4


def test_order_depends_on_epoch_and_seed(folder: Path) -> None:
    for i in range(30):
        (folder / f"{i}.many").touch()
    shuffled, twin = (Dataset.list_files(f"{folder}/*.many", seed=5) for _ in range(2))
    first, second = names(shuffled), names(shuffled)
    assert first != second
    assert sorted(first) == sorted(second)
    assert [names(twin), names(twin)] == [first, second]


def test_no_match_is_one_error_naming_the_pattern(folder: Path) -> None:
    iterator = iter(Dataset.list_files(f"{folder}/*.jpg"))
    with pytest.raises(NotFoundError, match=r"/\*\.jpg"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_splits_have_the_order_of_a_local_epoch(folder: Path) -> None:
    node = Dataset.list_files(f"{folder}/*.txt", seed=5).node
    assert isinstance(node, ListFiles)
    assert node.splits() == ListedSplits()
    context = Context(numbers=number(node))
    listed = node.list_splits(context)
    assert open_stream(node, context).next_chunk(10, 1 << 20) == listed
    splits = ScriptedSplits({0: [["/q", "/p"]]})
    stream = open_stream(node, replace(context, splits=splits))
    assert [stream.next(), stream.next_chunk(5, 100), stream.next_chunk(5, 100)] == [
        "/q",
        ["/p"],
        [],
    ]


def test_urls_are_listed_by_fsspec(folder: Path) -> None:
    dataset = Dataset.list_files(f"file://{folder}/*.bin")
    assert list(dataset) == [f"file://{folder}/x.bin"]


def test_chunks_respect_max_bytes(folder: Path) -> None:
    stream = open_stream(Dataset.list_files(f"{folder}/*.txt").node, Context())
    assert len(stream.next_chunk(5, 1)) == 1
    assert len(stream.next_chunk(1, 1 << 20)) == 1
    assert len(stream.next_chunk(5, 1 << 20)) == 1

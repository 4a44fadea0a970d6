"""Elements of stores are rebuilt with the classes that the functions of a dataset refer to."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import stoker
from tests.serving import Service, read


class Point(NamedTuple):
    x: int


@dataclasses.dataclass
class Box:
    size: Point


def _make(x: int) -> Box:
    return Box(Point(x))


def _size(box: Box) -> int:
    assert isinstance(box, Box)
    assert isinstance(box.size, Point)
    return box.size.x


BOXES = [Box(Point(0)), Box(Point(1))]

STORES: dict[str, Callable[[stoker.Dataset, str], stoker.Dataset]] = {
    "cache": lambda dataset, path: dataset.cache(path),
    "snapshot": lambda dataset, path: dataset.snapshot(path),
    "reader_func": lambda dataset, path: dataset.snapshot(
        path, reader_func=lambda files: files.flat_map(lambda file: file)
    ),
}


@pytest.mark.parametrize("store", STORES)
def test_later_epochs_have_the_classes_of_the_first(store: str, tmp_path: Path) -> None:
    dataset = STORES[store](stoker.Dataset.range(2).map(_make), str(tmp_path / "store"))
    for _ in range(2):
        assert list(dataset) == BOXES


def test_functions_after_load_get_the_classes_they_name(tmp_path: Path) -> None:
    stoker.Dataset.range(2).map(_make).save(str(tmp_path / "store"))
    loaded = stoker.Dataset.load(str(tmp_path / "store"))
    assert list(loaded.map(_size)) == [0, 1]
    assert not [box for box in loaded if isinstance(box, Box)], "nothing here names the class"


def test_functions_on_workers_get_the_classes_they_name(tmp_path: Path) -> None:
    cached = stoker.Dataset.range(2).map(_make).cache(str(tmp_path / "store"))
    with Service(1) as service:
        for _ in range(2):
            assert read(cached.map(_size).distribute(service.target)) == [0, 1]


def test_a_service_returns_the_classes_its_functions_name(tmp_path: Path) -> None:
    stoker.Dataset.range(2).map(_make).save(str(tmp_path / "store"))
    loaded = stoker.Dataset.load(str(tmp_path / "store"))
    boxes = loaded.filter(lambda box: isinstance(box, Box))
    with Service(1) as service:
        assert read(boxes.distribute(service.target)) == BOXES

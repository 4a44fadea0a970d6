"""The stages of a dataset as text."""

import io
import time
from typing import Any

import pytest
from rich.console import Console

from stoker import Dataset, LocalCluster


def slow(x: Any) -> Any:
    time.sleep(0.003)
    return x


def rows(dataset: Dataset) -> list[list[str]]:
    """Return the cells of the explanation's lines, without the sentence."""
    return [line.split() for line in str(dataset.explain()).splitlines()[:-1]]


def test_an_unread_dataset_shows_its_stages_inputs_first() -> None:
    lines = str(Dataset.range(1000).map(slow).batch(8).explain()).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["range", "map(slow)", "batch"]
    assert "tests/dataset/reports/test_explanation.py:" in lines[1]
    assert lines[1].split()[2:] == ["1,000", "TensorSpec(shape=(),", "dtype=int64)"]
    assert lines[3].split()[2] == "125"
    assert "time" not in lines[0]
    assert lines[4].startswith("Not read yet")


def test_no_function_is_called() -> None:
    called: list[int] = []
    str(Dataset.range(3).map(called.append).filter(called.append).explain())
    assert called == []


def test_cardinalities_without_a_number_are_named() -> None:
    assert "infinite" in str(Dataset.range(3).repeat().explain())
    assert "unknown" in str(Dataset.range(3).filter(bool).explain())


def test_after_a_pass_the_stages_have_times() -> None:
    dataset = Dataset.range(100).map(slow).batch(4)
    list(dataset)
    [header, source, mapping, batches] = rows(dataset)
    assert header[4:7] == ["elements", "time", "P50"]
    assert "100" in source
    assert mapping[4] == "100"
    assert int(mapping[5].rstrip("%")) > 50
    assert "25" in batches
    assert "map(slow) at tests/dataset/reports/test_explanation.py:" in str(dataset.explain())


def test_the_last_pass_of_this_object_counts() -> None:
    dataset = Dataset.range(100).map(slow)
    iterator = iter(dataset)
    for _ in range(10):
        next(iterator)
    iterator.close()
    assert rows(dataset)[2][4] == "10"
    assert str(dataset.batch(2).explain()).splitlines()[-1].startswith("Not read yet")


def test_inputs_of_a_stage_with_several_are_indented() -> None:
    dataset = Dataset.zip(Dataset.range(5).map(abs), Dataset.range(7)).batch(2)
    lines = str(dataset.explain()).splitlines()[1:-1]
    assert [line[: len(line) - len(line.lstrip())] for line in lines] == ["  ", "  ", "  ", "", ""]


def test_a_node_that_two_read_is_shown_once() -> None:
    shared = Dataset.range(5).map(abs)
    assert str(shared.concatenate(shared).explain()).count("map(abs)") == 1


def test_datasets_that_a_function_returned_are_shown_after_a_pass() -> None:
    dataset = Dataset.range(3).flat_map(lambda _: Dataset.range(20).map(slow))
    assert "map(slow)" not in str(dataset.explain())
    list(dataset)
    lines = str(dataset.explain()).splitlines()
    assert lines[3].startswith("  map(slow)")
    assert lines[4].startswith("flat_map(lambda)")


def test_stages_on_workers_are_shown() -> None:
    with LocalCluster(num_workers=1) as cluster:
        numbers = Dataset.range(20)
        dataset = Dataset.zip(numbers.map(slow), numbers.map(abs)).distribute(cluster).batch(2)
        _, *lines, _ = str(dataset.explain()).splitlines()
    assert [line.partition("  tests/")[0].rstrip() for line in lines] == [
        "    range on workers",
        "    map on workers",
        "    map on workers",
        "  zip on workers",
        "distribute(distributed_epoch)",
        "batch",
    ]


def test_waiting_for_workers_is_no_time_of_a_stage() -> None:
    with LocalCluster(num_workers=1) as cluster:
        dataset = Dataset.range(20).map(slow).distribute(cluster).batch(2)
        with dataset.iterator() as iterator:
            assert len(list(iterator)) == 10
            header, *lines = str(dataset.explain()).splitlines()
    at = slice(header.index("time "), header.index("P50"))
    [distribute] = [line for line in lines if line.startswith("distribute")]
    [batch] = [line for line in lines if line.startswith("batch")]
    assert (distribute[at].strip(), batch[at].strip()) == ("", "100%")


def test_long_specs_are_cut() -> None:
    dataset = Dataset.from_tensor_slices({f"column{i}": [1, 2] for i in range(20)})
    assert max(map(len, str(dataset.explain()).splitlines()[1:])) < 160


@pytest.mark.parametrize("is_read", [False, True])
def test_rich_shows_the_same_table(is_read: bool) -> None:
    dataset = Dataset.range(3).map(abs)
    if is_read:
        list(dataset)
    out = io.StringIO()
    Console(file=out, width=200).print(dataset.explain())
    text = out.getvalue()
    assert "map(abs)" in text
    assert ("P99" in text) == is_read

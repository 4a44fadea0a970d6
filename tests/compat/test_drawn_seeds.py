"""Seeds that the user did not give: no part of the identity of a state, a cache or a snapshot."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.compat import tf
from stoker.dataset import nodes
from stoker.dataset.tree.node import layout_of, registry
from stoker.errors import FailedPreconditionError, InvalidArgumentError

D: Any = tf.data.Dataset


@pytest.fixture(autouse=True)
def _no_seed() -> Iterator[None]:
    yield
    tf.random.set_seed(None)


def inner() -> Any:
    captured = D.range(5).shuffle(5)
    return D.range(9).flat_map(lambda _: captured)


PIPELINES: dict[str, Callable[[], Any]] = {
    "no shuffle": lambda: D.range(30),
    "shuffle": lambda: D.range(30).shuffle(9),
    "own seed": lambda: D.range(30).shuffle(9, seed=5),
    "fixed order": lambda: D.range(10).shuffle(9, reshuffle_each_iteration=False).repeat(3),
    "random": lambda: D.random().take(30),
    "sample_from_datasets": lambda: D.sample_from_datasets(
        [D.range(30).shuffle(9), D.random().take(30)]
    ),
    "rejection_resample": lambda: D.range(90).rejection_resample(
        lambda x: x % 2, [0.3, 0.7], [0.5, 0.5]
    ),
    "zip": lambda: D.zip({"a": D.range(30).shuffle(9), "b": (D.range(30), D.random())}),
    "nested": inner,
    "generator": lambda: D.range(30).map(lambda x: x + stoker.random.generator().random()),
}


@pytest.mark.parametrize("globally", [3, None])
@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES)
def test_state_carries_the_drawn_seeds_to_an_equal_pipeline(
    make: Callable[[], Any], globally: int | None
) -> None:
    tf.random.set_seed(globally)
    first = make()
    iterator = iter(first)
    for _ in range(7):
        next(iterator)
    state = json.dumps(iterator.state_dict())
    assert len(state) < 400
    tf.random.set_seed(None if globally is None else 8)
    D.range(3).shuffle(3)
    resumed = make()
    assert list(resumed.iterator(state=json.loads(state))) == list(iterator)
    assert list(resumed) == list(first.iterator(epoch=1))  # its later epochs have them, too


def test_another_process_that_builds_more_resumes_the_state(tmp_path: Path) -> None:
    build = "D.sample_from_datasets([D.range(30).shuffle(9), D.random().take(30)])"
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys\n"
        "from stoker.compat import tf\n"
        "D = tf.data.Dataset\n"
        "tf.random.set_seed(3)\n"
        "if sys.argv[1:]:\n"
        "    D.range(5).shuffle(5)\n"
        f"    print(json.dumps(list({build}.iterator(state=json.loads(sys.argv[1])))))\n"
        "else:\n"
        f"    iterator = iter({build})\n"
        "    [next(iterator) for _ in range(11)]\n"
        "    print(json.dumps([iterator.state_dict(), list(iterator)]))\n"
    )

    def run(*arguments: str) -> Any:
        command = [sys.executable, str(script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
        return json.loads(done.stdout)

    state, rest = run()
    assert len(rest) == 49
    assert run(json.dumps(state)) == rest


def test_datasets_derived_from_one_shuffle_adopt_the_seeds_together() -> None:
    def halves() -> tuple[Any, Any]:
        whole = D.range(30).shuffle(30, reshuffle_each_iteration=False)
        return whole.take(10), whole.skip(10)

    tf.random.set_seed(3)
    head, tail = halves()
    state = iter(tail).state_dict()
    again_head, again_tail = halves()
    assert list(again_tail.iterator(state=state)) == list(tail.iterator(epoch=0))
    assert list(again_head) == list(head)


def test_iterator_that_is_open_keeps_its_seeds_when_another_resumes() -> None:
    def make() -> Any:
        return D.range(10).shuffle(10).repeat(4)

    tf.random.set_seed(3)
    dataset = make()
    expected = list(dataset.iterator(epoch=0))
    reading = dataset.iterator(epoch=0)
    found = [next(reading)]
    state = iter(make()).state_dict()
    list(dataset.iterator(state=state))
    assert found + list(reading) == expected
    assert reading.state_dict()["salts"] != state["salts"]


def test_state_of_another_given_seed_is_refused() -> None:
    tf.random.set_seed(3)
    state = iter(D.range(30).shuffle(9, seed=5)).state_dict()
    for other in (D.range(30).shuffle(9, seed=6), D.range(30).shuffle(9)):
        with pytest.raises(InvalidArgumentError, match=r"`shuffle` .* has other arguments"):
            other.iterator(state=state)


def test_given_option_seed_replaces_drawn_seeds() -> None:
    def order(seed: int | None = None) -> list[int]:
        D.range(3).shuffle(3)
        return list(D.range(30).shuffle(30).with_options(stoker.Options(seed=seed)))

    tf.random.set_seed(3)
    assert order(7) == order(7) != order(8)
    assert order() != order()


def test_file_cache_is_read_by_an_equal_pipeline(tmp_path: Path) -> None:
    def make(name: str, **seed: int) -> Any:
        return D.range(30).shuffle(30, **seed).cache(str(tmp_path / name))

    tf.random.set_seed(3)
    kept = list(make("drawn"))
    assert list(make("drawn")) == kept
    tf.random.set_seed(4)
    assert list(make("drawn")) == kept
    list(make("given", seed=1))
    with pytest.raises(FailedPreconditionError, match="written by another pipeline"):
        list(make("given", seed=2))


def test_snapshot_is_read_by_an_equal_pipeline(tmp_path: Path) -> None:
    def make(**seed: int) -> list[int]:
        return list(D.range(30).shuffle(30, **seed).snapshot(str(tmp_path)))

    tf.random.set_seed(3)
    assert make() == make()
    assert len(list(tmp_path.iterdir())) == 1
    make(seed=1)
    make(seed=2)
    assert len(list(tmp_path.iterdir())) == 3


def test_every_node_with_a_seed_has_a_salt() -> None:
    nodes.register_all()
    seeded = [cls for cls in registry.values() if "seed" in cls.__struct_fields__]
    assert len(seeded) > 5
    assert [cls for cls in seeded if layout_of(cls).plain.keys() & {"salt"}] == []
    assert [cls for cls in seeded if "salt" not in cls.__struct_fields__] == []


RANDOM: dict[str, Callable[[Any], Any]] = {
    "shuffle": lambda source: source.shuffle(50),
    "sample_from_datasets": lambda source: D.sample_from_datasets([source, D.range(50, 99)]),
    "rejection_resample": lambda source: source.rejection_resample(
        lambda x: x % 2, [0.3, 0.7], [0.5, 0.5]
    ),
}


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_two_random_steps_of_one_dataset_differ_without_a_global_seed(
    draw: Callable[[Any], Any],
) -> None:
    source = D.range(50)
    assert list(draw(source)) != list(draw(source))


def test_parts_of_one_shuffle_do_not_overlap_without_a_global_seed() -> None:
    whole = D.range(50).shuffle(50, reshuffle_each_iteration=False)
    parts = whole.take(20), whole.skip(20).shuffle(50)
    assert sorted(list(parts[0]) + list(parts[1])) == list(range(50))


def test_dataset_of_before_a_global_seed_is_shuffled_alike_in_each_run() -> None:
    source = D.range(50)

    def orders() -> list[list[int]]:
        tf.random.set_seed(3)
        return [list(source.shuffle(50).iterator(epoch=0)) for _ in range(2)]

    first, second = orders()
    assert first != second
    assert orders() == [first, second]

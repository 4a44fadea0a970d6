"""Jobs of datasets whose seeds `tf.random.set_seed` drew: those of the first client count."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.compat import tf
from stoker.errors import InvalidArgumentError
from tests.serving import read

D: Any = tf.data.Dataset
data_service: Any = tf.data.experimental.service
OFF, DYNAMIC = "parallel_epochs", "distributed_epoch"


@pytest.fixture(autouse=True)
def _global_seed() -> Iterator[None]:
    tf.random.set_seed(3)
    yield
    tf.random.set_seed(None)


def shuffled() -> Any:
    return D.range(50).shuffle(50)


def sampled() -> Any:
    return D.sample_from_datasets([D.range(50), D.range(50, 100).shuffle(9)]).shuffle(50)


def named(dataset: Any, target: str, name: str | None = "one") -> Any:
    return dataset.apply(data_service.distribute(OFF, target, job_name=name))


@pytest.mark.parametrize("make", [shuffled, sampled])
def test_second_client_of_a_named_job_reads_with_the_seeds_of_the_first(
    serve: Any, make: Callable[[], Any]
) -> None:
    target = serve(1).target
    first = make()
    assert read(named(first, target)) == list(first.iterator(epoch=0))
    second = make()
    found = read(named(second, target).iterator(epoch=1))
    assert found == list(first.iterator(epoch=1)) != list(second.iterator(epoch=1))


def test_client_in_another_process_reads_with_the_seeds_of_the_job(
    serve: Any, tmp_path: Path
) -> None:
    target = serve(1).target
    first = shuffled()
    assert read(named(first, target)) == list(first.iterator(epoch=0))
    script = tmp_path / "second.py"
    script.write_text(
        "import sys, warnings\n"
        "from stoker.compat import tf\n"
        "warnings.simplefilter('error')\n"
        "tf.random.set_seed(3)\n"
        "D = tf.data.Dataset\n"
        "D.range(5).shuffle(5)\n"
        "distribute = tf.data.experimental.service.distribute\n"
        "transformation = distribute('parallel_epochs', sys.argv[1], job_name='one')\n"
        "print(list(D.range(50).shuffle(50).apply(transformation).iterator(epoch=1)))\n"
    )
    command = [sys.executable, str(script), target]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.strip() == str(list(first.iterator(epoch=1)))


def test_seeds_of_a_job_and_of_an_id_survive_a_restart(serve: Any, journal: Any) -> None:
    service = serve(1, **journal)
    first = shuffled()
    dataset_id = data_service.register_dataset(service.target, first)
    assert read(named(first, service.target)) == list(first.iterator(epoch=0))
    service.restart_dispatcher(**journal)
    second = shuffled()
    found = read(named(second, service.target).iterator(epoch=1))
    assert found == list(first.iterator(epoch=1))
    assert data_service.register_dataset(service.target, second) == dataset_id
    by_id = data_service.from_dataset_id(OFF, service.target, dataset_id)
    assert read(by_id.iterator(epoch=0)) == list(first.iterator(epoch=0))


def test_anonymous_jobs_and_jobs_of_other_names_keep_their_own_seeds(serve: Any) -> None:
    target = serve(1).target
    for name in (None, "one", "other"):
        dataset = shuffled()
        assert read(named(dataset, target, name)) == list(dataset.iterator(epoch=0))


def test_all_workers_use_the_seeds_of_the_job(serve: Any) -> None:
    dataset = shuffled()
    found = read(named(dataset, serve(2).target))
    expected = list(dataset.iterator(epoch=0))
    orders: dict[bool, list[int]] = {True: [], False: []}
    seen: set[int] = set()
    for element in found:
        orders[element in seen].append(element)
        seen.add(element)
    assert orders == {True: expected, False: expected}


def test_files_are_listed_with_the_salt_of_the_job(serve: Any, tmp_path: Path) -> None:
    for name in range(20):
        (tmp_path / f"{name}.txt").touch()
    dataset = D.list_files(str(tmp_path / "*"))
    remote = dataset.apply(data_service.distribute(DYNAMIC, serve(1).target))
    assert read(remote) == list(dataset.iterator(epoch=0)) != sorted(dataset)


def test_workers_differ_without_a_global_seed(serve: Any) -> None:
    tf.random.set_seed(None)
    found = read(named(D.range(50).shuffle(50).enumerate(), serve(2).target))
    at = {number: {x for n, x in found if n == number} for number in range(50)}
    assert any(len(elements) == 2 for elements in at.values())


def test_given_seeds_are_agreed_on_and_the_error_names_the_node(serve: Any) -> None:
    target = serve(1).target
    read(named(D.range(50).shuffle(50, seed=1), target))
    with pytest.raises(InvalidArgumentError) as caught:
        read(named(D.range(50).shuffle(50, seed=2), target))
    assert (
        "the first node that differs: Existing: <shuffle(buffer_size=50, seed=1, "
        "reshuffle_each_iteration=True)>; got <shuffle(buffer_size=50, seed=2, "
        "reshuffle_each_iteration=True)>. Clients of one job" in str(caught.value)
    )


def test_error_of_a_job_names_a_node_that_only_one_client_has(serve: Any) -> None:
    target = serve(1).target
    read(stoker.Dataset.range(5).distribute(target, job_name="one"))
    longer = stoker.Dataset.range(5).take(3).distribute(target, job_name="one")
    with pytest.raises(InvalidArgumentError, match=r"Existing: <none>; got <take\(count=3\)>"):
        read(longer)

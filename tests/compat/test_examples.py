"""Run every runnable example in TensorFlow's documentation of tf.data service."""

import types
from typing import Any

import pytest

from stoker.compat import tf
from stoker.service import WorkerServer
from tests.compat.session import (
    DEADLINE,
    Example,
    examples,
    output,
    run_doctest,
    running,
)
from tests.serving import Service, read

ALL = examples()
DOCTESTS = [example for example in ALL if example.kind == "pycon"]
SCRIPTS = [example for example in ALL if example.kind == "python"]

SERVERS = "dedicated process", "Server.join"
SHARED = "distribute, a shared job"
PRINTING = "distribute, before and after"
FAULT_TOLERANT = "DispatchServer, fault tolerant"

CACHES = "The module, cross-trainer cache", "CrossTrainerCache"

NEEDS_TENSORFLOW = {
    "The module, strategy.experimental_distribute_dataset": "experimental_distribute_dataset",
    "The module, strategy.distribute_datasets_from_function": "distribute_datasets_from_function",
    "The module, coordinator.create_per_worker_dataset": "create_per_worker_dataset",
}
"""Examples whose last line calls tf.distribute, with the function it calls."""


def with_title(*titles: str) -> list[Example]:
    return [example for example in SCRIPTS if example.title in titles]


def with_suffix(*ends: str) -> list[Example]:
    return [example for example in SCRIPTS if example.title.endswith(ends)]


def test_every_example_is_run_or_listed_as_unsupported():
    handled = [
        *with_suffix(*SERVERS),
        *with_title(SHARED, PRINTING, FAULT_TOLERANT, *CACHES, *NEEDS_TENSORFLOW),
    ]
    assert sorted(map(str, handled)) == sorted(map(str, SCRIPTS))
    assert (len(DOCTESTS), len(SCRIPTS)) == (29, 23)


@pytest.mark.parametrize("example", DOCTESTS, ids=str)
def test_doctest_example_prints_the_documented_output(example):
    run_doctest(example)


def server_pairs() -> list[tuple[Example, Example]]:
    """Return each standalone dispatcher example with the worker example of its version."""
    return [
        (dispatcher, worker)
        for dispatcher in with_suffix(*SERVERS)
        for worker in with_suffix(*SERVERS)
        if dispatcher.title.startswith("Dispatch")
        and worker.title == dispatcher.title.replace("Dispatch", "Worker")
        and worker.version == dispatcher.version
    ]


@pytest.mark.parametrize(("dispatcher", "worker"), server_pairs(), ids=str)
def test_standalone_servers_serve_a_dataset(dispatcher, worker):
    serving = "print(dispatcher.target, flush=True)\ndispatcher.join()"
    program = dispatcher.at({5050: 0}).program.replace("dispatcher.join()", serving)
    with running(program) as [process]:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        ports = {5050: int(address.rpartition(":")[2]), 5051: 0}
        with running(worker.at(ports).program):
            dataset = tf.data.Dataset.range(10).apply(
                tf.data.experimental.service.distribute("parallel_epochs", address)
            )
            assert read(dataset, deadline=DEADLINE) == list(range(10))


@pytest.mark.parametrize("example", with_title(SHARED), ids=str)
def test_shared_job_divides_iterations_between_trainers(example):
    with Service(workers=1) as service:
        program = example.at({5000: service.address[1]}).program
        with running(program, program) as trainers:
            printed = [output(trainer).splitlines() for trainer in trainers]
    assert [len(lines) for lines in printed] == [3, 3]
    for first, second in zip(*printed, strict=True):
        elements = [int(word) for line in (first, second) for word in line[1:-1].split(",") if word]
        assert sorted(elements) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("example", with_title(PRINTING), ids=str)
def test_nodes_after_distribute_run_in_the_trainer(example):
    with Service(workers=1) as service:
        program = example.at({5000: service.address[1]}).program
        with running(program) as trainers:
            assert output(trainers[0]).split() == ["1", "2", "5", "10", "17"]


@pytest.mark.parametrize("example", with_title(FAULT_TOLERANT), ids=str)
def test_a_fault_tolerant_dispatcher_remembers_its_datasets(example, tmp_path):
    service = tf.data.experimental.service
    code = example.at({5050: 0}).code.replace("gs://my-bucket", str(tmp_path))
    assert str(tmp_path) in code
    for run in range(2):
        names: dict[str, Any] = {"tf": tf}
        exec(code, names)
        with names["dispatcher"] as dispatcher:
            address = dispatcher.target
            with WorkerServer(dispatcher_address=address):
                if not run:
                    dataset = tf.data.Dataset.range(10)
                    service.register_dataset(address, dataset, dataset_id="ten")
                dataset = service.from_dataset_id("parallel_epochs", address, "ten")
                assert read(dataset, deadline=DEADLINE) == list(range(10))


@pytest.mark.parametrize("example", with_title(*CACHES), ids=str)
def test_two_trainers_with_a_cache_read_the_same(example):
    with Service() as service:
        for trainer in ("one", "other"):
            names: dict[str, Any] = {
                "tf": tf,
                "data_service_ops": tf.data.experimental.service,
                "FLAGS": types.SimpleNamespace(tf_data_service_address=service.target),
                "trainer_id": lambda trainer=trainer: trainer,
                "expensive_computation": lambda: tf.data.Dataset.range(10).repeat(),
                "dataset": tf.data.Dataset.range(10).repeat(),
            }
            exec(example.code, names)
            assert read(names["dataset"], 15, deadline=DEADLINE) == [*range(10), *range(5)]


@pytest.mark.parametrize("policy", ["DATA", "FILE_OR_DATA", "HINT"])
def test_static_sharding_divides_the_data(policy):
    """TensorFlow's module page describes it without an example."""
    service = tf.data.experimental.service
    config = service.DispatcherConfig(worker_addresses=["localhost", "localhost"])
    dataset = tf.data.Dataset.range(10)
    if policy == "HINT":
        hint = tf.data.experimental.SHARD_HINT
        dataset = dataset.shard(num_shards=hint, index=hint)
    with service.DispatchServer(config) as dispatcher:
        address = dispatcher.target.split("://")[1]
        worker = service.WorkerConfig(dispatcher_address=address)
        with service.WorkerServer(worker), service.WorkerServer(worker):
            dataset = dataset.apply(
                service.distribute(service.ShardingPolicy[policy], dispatcher.target)
            )
            assert sorted(dataset.as_numpy_iterator()) == list(range(10))


class Strategy:
    """Replacement for tf.distribute's strategies that returns the dataset unchanged."""

    def experimental_distribute_dataset(self, dataset):
        return dataset

    def distribute_datasets_from_function(self, function):
        return function(None)

    create_per_worker_dataset = distribute_datasets_from_function


@pytest.mark.parametrize("example", with_title(*NEEDS_TENSORFLOW), ids=str)
def test_tf_distribute_examples_run_up_to_the_last_line(example):
    assert NEEDS_TENSORFLOW[example.title] in example.code.splitlines()[-1]
    code = example.code.replace("dataset = ...", "dataset = dataset_fn()")
    with Service(workers=1) as service:
        names: dict[str, Any] = {
            "tf": tf,
            "FLAGS": types.SimpleNamespace(tf_data_service_address=service.target),
            "dataset_fn": lambda: tf.data.Dataset.range(3),
            "strategy": Strategy(),
            "coordinator": Strategy(),
        }
        exec(code, names)
        assert read(names["dataset"]) == [0, 1, 2]

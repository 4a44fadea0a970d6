"""Every runnable example in TensorFlow's documentation of its service runs here."""

import types
from typing import Any

import pytest

from stoker.compat import tf
from stoker.errors import UnimplementedError
from tests.compat.session import (
    DEADLINE,
    Example,
    examples,
    fixed_ports,
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

REFUSED = {
    "DispatchServer, fault tolerant": "`fault_tolerant_mode` is not in this version",
    "The module, cross-trainer cache": "`cross_trainer_cache` is not in this version",
    "CrossTrainerCache": "`cross_trainer_cache` is not in this version",
}
"""What these need is not in this version; when it is, the example belongs among the others."""

NEEDS_TENSORFLOW = {
    "The module, strategy.experimental_distribute_dataset": "experimental_distribute_dataset",
    "The module, strategy.distribute_datasets_from_function": "distribute_datasets_from_function",
    "The module, coordinator.create_per_worker_dataset": "create_per_worker_dataset",
}
"""These hand a dataset to tf.distribute; all but that is here."""


def titled(*titles: str) -> list[Example]:
    return [example for example in SCRIPTS if example.title in titles]


def ending(*ends: str) -> list[Example]:
    return [example for example in SCRIPTS if example.title.endswith(ends)]


def test_every_example_is_run_or_said_why_not():
    handled = [*ending(*SERVERS), *titled(SHARED, PRINTING, *REFUSED, *NEEDS_TENSORFLOW)]
    assert sorted(map(str, handled)) == sorted(map(str, SCRIPTS))
    assert (len(DOCTESTS), len(SCRIPTS)) == (29, 23)


@pytest.mark.parametrize("example", DOCTESTS, ids=str)
def test_an_example_with_prompts_prints_what_it_says(example):
    run_doctest(example)


def pairs() -> list[tuple[Example, Example]]:
    """A dispatcher of its own process, and a worker of the same version's for it."""
    return [
        (dispatcher, worker)
        for dispatcher in ending(*SERVERS)
        for worker in ending(*SERVERS)
        if dispatcher.title.startswith("Dispatch")
        and worker.title == dispatcher.title.replace("Dispatch", "Worker")
        and worker.version == dispatcher.version
    ]


@pytest.mark.parametrize(("dispatcher", "worker"), pairs(), ids=str)
def test_servers_in_processes_of_their_own_serve_a_dataset(dispatcher, worker):
    with fixed_ports(5050, 5051), running(dispatcher.program, worker.program):
        dataset = tf.data.Dataset.range(10).apply(
            tf.data.experimental.service.distribute("parallel_epochs", "grpc://localhost:5050")
        )
        assert read(dataset, deadline=DEADLINE) == list(range(10))


@pytest.mark.parametrize("example", titled(SHARED), ids=str)
def test_a_shared_job_divides_each_iteration_between_two_trainers(example):
    with (
        fixed_ports(5000),
        Service(workers=1, port=5000),
        running(example.program, example.program) as trainers,
    ):
        printed = [output(trainer).splitlines() for trainer in trainers]
    assert [len(lines) for lines in printed] == [3, 3]
    for first, second in zip(*printed, strict=True):
        elements = [int(word) for line in (first, second) for word in line[1:-1].split(",") if word]
        assert sorted(elements) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("example", titled(PRINTING), ids=str)
def test_what_comes_after_distribute_runs_in_the_trainer(example):
    with fixed_ports(5000), Service(workers=1, port=5000), running(example.program) as trainers:
        assert output(trainers[0]).split() == ["1", "2", "5", "10", "17"]


@pytest.mark.parametrize("example", titled(*REFUSED), ids=str)
def test_an_example_of_a_missing_feature_is_refused_by_its_name(example):
    names = {
        "tf": tf,
        "data_service_ops": tf.data.experimental.service,
        "FLAGS": types.SimpleNamespace(tf_data_service_address="localhost:5000"),
        "trainer_id": lambda: "trainer",
        "expensive_computation": lambda: tf.data.Dataset.range(10).repeat(),
        "dataset": tf.data.Dataset.range(10).repeat(),
    }
    with pytest.raises(UnimplementedError, match=REFUSED[example.title]):
        exec(example.code, names)


@pytest.mark.parametrize("policy", ["FILE", "DATA", "FILE_OR_DATA", "HINT"])
def test_static_sharding_is_refused_by_its_name(policy):
    """The module's page describes it in words."""
    service = tf.data.experimental.service
    with pytest.raises(UnimplementedError, match=f"ShardingPolicy.{policy} is not in this version"):
        service.distribute(service.ShardingPolicy[policy], "localhost:5000")


def test_coordinated_reads_are_refused_by_their_name():
    """The module's page describes them in words."""
    distribute = tf.data.experimental.service.distribute
    with pytest.raises(UnimplementedError, match="`num_consumers`"):
        distribute("parallel_epochs", "localhost:5000", "job", consumer_index=0, num_consumers=2)


class Strategy:
    """Stands for tf.distribute's: takes the dataset as it is."""

    def experimental_distribute_dataset(self, dataset):
        return dataset

    def distribute_datasets_from_function(self, function):
        return function(None)

    create_per_worker_dataset = distribute_datasets_from_function


@pytest.mark.parametrize("example", titled(*NEEDS_TENSORFLOW), ids=str)
def test_all_of_an_example_with_tf_distribute_but_its_last_line_runs(example):
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

"""Every fault of the soak once, with short leases; the long version runs by itself."""

import random
import sys
from pathlib import Path

import pytest

from tests.faults.soak.faults import FAULTS, LEASE
from tests.faults.soak.growth import Trend, Usage, grown
from tests.faults.soak.processes import Cluster
from tests.faults.soak.rules import Reading, violations
from tests.faults.soak.run import TRAINERS, WORKERS, Soak

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PACE = 0.3


@linux
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_epochs_obey_the_rules_under_every_fault(tmp_path: Path) -> None:
    story: list[str] = []
    faults = random.Random(1).sample(FAULTS, len(FAULTS))
    with Cluster(
        tmp_path,
        WORKERS,
        TRAINERS,
        worker={"shutdown_quiet_period_ms": 10_000},
        dispatcher={"worker_timeout_ms": int(LEASE * PACE * 1000)},
    ) as cluster:
        soak = Soak(cluster, 1, story.append, elements=1_000, pace=PACE)
        report = soak.run([iter(faults[number::3]) for number in range(3)])
    assert not report.broken, "\n".join(story)
    assert {fault.name for fault in FAULTS} <= set(report.faults)


NUMBERS = [(number, 0) for number in range(9)]


@pytest.mark.parametrize(
    ("received", "stats", "found"),
    [
        (NUMBERS, {}, []),
        (NUMBERS[:7], {"splits_lost": 2, "tasks_lost": 1}, []),
        (NUMBERS[:7], {"elements_lost": 2}, []),
        (NUMBERS[:7], {"splits_lost": 1}, ["2 elements are missing, but only 1 were counted"]),
        ([*NUMBERS, (3, 0)], {}, ["1 elements arrived twice: 3"]),
        ([*NUMBERS, (9, 0)], {}, ["elements that do not exist: 9"]),
    ],
)
def test_dynamic_rule_finds(
    received: list[tuple[int, int]], stats: dict[str, int], found: list[str]
) -> None:
    broken = violations("distributed_epoch", 9, [Reading(received, stats)], losses=True, drains=0)
    assert [line[: len(start)] for line, start in zip(broken, found, strict=True)] == found


def test_clients_of_a_job_share_the_elements() -> None:
    halves = [Reading(NUMBERS[:4]), Reading(NUMBERS[4:])]
    assert violations("distributed_epoch", 9, halves, losses=False, drains=0) == []
    twice = [Reading(NUMBERS[:5]), Reading(NUMBERS[4:])]
    assert violations("distributed_epoch", 9, twice, losses=False, drains=0) == [
        "1 elements arrived twice: 4"
    ]


@pytest.mark.parametrize(
    ("lengths", "stats", "drains", "found"),
    [
        ([9, 9], {}, 0, []),
        ([9, 5], {"tasks_lost": 1}, 0, []),
        ([9, 5], {}, 1, []),
        ([9, 5], {}, 0, ["1 tasks ended early; 0 were lost and 0 drained"]),
        ([5], {"tasks_lost": 1}, 0, ["no task was read to its end"]),
    ],
)
def test_off_rule_finds(
    lengths: list[int], stats: dict[str, int], drains: int, found: list[str]
) -> None:
    received = [(number, task) for task, length in enumerate(lengths) for number in range(length)]
    reading = Reading(received, stats)
    assert violations("parallel_epochs", 9, [reading], losses=True, drains=drains) == found


def test_off_rule_finds_elements_out_of_order() -> None:
    reading = Reading([*NUMBERS[:4], *NUMBERS[5:]])
    broken = violations("parallel_epochs", 9, [reading], losses=True, drains=0)
    assert broken[0].startswith("task 0 yielded 0, 1, 2, 3, 5, 6, 7, 8")


def test_a_lost_task_without_a_fault_is_found() -> None:
    reading = Reading(NUMBERS, {"tasks_lost": 1})
    assert violations("distributed_epoch", 9, [reading], losses=False, drains=0) == [
        "a task was lost although no worker was"
    ]


SMALL, LARGE = Usage(30.0, 8, 20), Usage(36.0, 8, 20)


@pytest.mark.parametrize(
    ("late", "found"),
    [
        (SMALL, False),
        (LARGE, True),
        (SMALL._replace(threads=10), True),
        (SMALL._replace(descriptors=23), True),
    ],
)
def test_a_process_that_grows_is_found(late: Usage, found: bool) -> None:
    assert bool(grown({"worker 0": Trend(SMALL, late, SMALL)})) == found

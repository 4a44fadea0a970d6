"""`stoker jobs` and `stoker datasets` against a dispatcher."""

import json
from collections.abc import Iterator

import pytest

import stoker
from stoker.errors import CancelledError
from stoker.service import register_dataset
from tests.cli.status.test_status import stoker_command
from tests.serving import Service, read


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(1) as service:
        yield service


def test_a_job_is_listed_described_and_cancelled(service: Service):
    dataset = stoker.Dataset.range(10**6).distribute(service.target, job_name="train")
    with dataset.iterator() as iterator:
        next(iterator)
        listed = stoker_command("jobs", "list", service.target)
        assert listed.stdout.splitlines()[1].split()[:4] == ["train", "0", "DYNAMIC", "running"]
        described = stoker_command("jobs", "describe", "train", service.target)
        assert described.stdout.startswith("job train: mode DYNAMIC, target_workers AUTO\n")
        lines = [line.split()[:3] for line in described.stdout.splitlines()]
        assert [service.workers[0].address, "running", "1"] in lines
        cancelled = stoker_command("jobs", "cancel", "train", service.target)
        text = "job 'train' was cancelled; 1 client is refused, 1 task ends\n"
        assert (cancelled.returncode, cancelled.stdout) == (0, text)
        with pytest.raises(CancelledError, match="cancelled with `stoker jobs cancel`"):
            read(iterator)
    assert stoker_command("jobs", "list", service.target).stdout == "no jobs\n"


def test_a_dataset_is_listed_described_and_forgotten(service: Service):
    numbers = stoker.Dataset.range(7).map(abs).batch(2)
    dataset_id = register_dataset(service.target, numbers)
    listed = stoker_command("datasets", "list", service.target).stdout.splitlines()
    assert [dataset_id, "4"] == listed[1].split()[:2]
    described = stoker_command("datasets", "describe", dataset_id, service.target).stdout
    assert "range(start=0, stop=7, step=1)  at tests/cli/status/test_details.py:" in described
    assert "\nmap(function)  at tests/cli/status/test_details.py:" in described
    done = stoker_command("datasets", "describe", dataset_id, service.target, "--json")
    found = json.loads(done.stdout)
    assert (found["cardinality"], len(found["details"]["tree"])) == (4, 3)
    forgotten = stoker_command("datasets", "forget", dataset_id, service.target)
    assert forgotten.stdout == f"dataset {dataset_id} was forgotten\n"
    assert stoker_command("datasets", "list", service.target).stdout == "no datasets\n"


def test_a_job_without_a_name_is_listed_by_all_of_its_name(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    dataset = stoker.Dataset.range(10**6)
    with Service(1) as service, dataset.distribute(service.target).iterator() as iterator:
        next(iterator)
        found = json.loads(stoker_command("jobs", "list", service.target, "--json").stdout)
        [name] = [each["name"] for each in found]
        wide = stoker_command("jobs", "list", service.target).stdout.splitlines()
        assert wide[1].split()[:2] == [name, "0"]
        monkeypatch.setenv("COLUMNS", "80")
        narrow = stoker_command("jobs", "list", service.target).stdout.splitlines()
        assert name in narrow
        assert max(map(len, narrow)) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("jobs", "describe", "none"), "no job is named 'none'; the jobs of this dispatcher: none"),
        (("jobs", "cancel", "none"), "no job is named 'none'; the jobs of this dispatcher: none"),
        (("datasets", "describe", "none"), "Dataset id none not found"),
        (("datasets", "forget", "none"), "Dataset id none not found"),
    ],
    ids=" ".join,
)
def test_unknown_names_are_one_line(service: Service, words: tuple[str, ...], message: str):
    done = stoker_command(*words, service.target)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"stoker: {message}")


@pytest.mark.parametrize("words", [("jobs",), ("datasets",), ("jobs", "cancel")])
def test_incomplete_commands_are_wrong_usage(words: tuple[str, ...]):
    assert stoker_command(*words).returncode == 2

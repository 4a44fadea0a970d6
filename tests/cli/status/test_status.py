"""`stoker status`: the sentence, the tables and the JSON."""

import io
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

import stoker
from stoker.cli.app import app
from stoker.cli.status.tables import CLIENTS
from stoker.cli.status.view import print_status, status_tables, summary
from stoker.service import DispatchServer
from stoker.service import messages as m
from stoker.service import status as st
from stoker.service.control import rpc
from stoker.service.loading import Loading
from tests.cli.status.statuses import client, epoch, job, status, worker
from tests.serving import Service, eventually


def stoker_command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stoker", *words], capture_output=True, text=True, timeout=60
    )


def printed(found: st.Status, width: int = 80) -> str:
    file = io.StringIO()
    print_status(found, Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (status([], []), "no worker is registered."),
        (status([], [job()]), "1 client waits: no worker is registered."),
        (status([worker()], []), "1 worker, 50 elements/s (5.0 MB/s), read by nobody."),
        (
            status([worker(elements_per_second=0.0)], []),
            "1 worker, idle: no client reads.",
        ),
        (
            status([worker(), worker("host:2", draining=True)], [job()]),
            "2 workers (1 draining), 100 elements/s (10 MB/s), read by 1 client of 1 job.",
        ),
        (
            status(
                [worker(connected=False)],
                [job(epochs=[epoch(state="failed", tasks_lost=1, elements_lost=1234)])],
            ),
            (
                "1 worker (1 not connected), 50 elements/s (5.0 MB/s), read by 1 client of 1 job; "
                "1 epoch failed; lost: 1 task, 1,234 elements."
            ),
        ),
    ],
)
def test_first_line_is_the_state_in_one_sentence(found, sentence):
    assert summary(found) == sentence
    assert printed(found, 200).splitlines()[0] == sentence


def test_clients_of_a_deterministic_epoch_are_shown_with_their_positions():
    table = CLIENTS.columns[">EPOCH"]
    assert table((job(), client(position=12_345))) == "0 at 12,345"
    assert table((job(), client())) == "0"


def test_tables_show_workers_epochs_clients_and_losses():
    found = status(
        [
            worker(tags=["FAST"], shard=3, loading=Loading("torch", 9.0)),
            worker("host:2", connected=False, silent_seconds=7.0),
        ],
        [job(epochs=[epoch(elements_lost=5)], clients=[client(sentence="the trainer is slow")])],
        [st.EventStatus(70.0, "WARNING", "5 elements are lost", "host:2", "train", "0")],
    )
    lines = [" ".join(line.split()) for line in printed(found, 160).splitlines()]
    assert (
        "host:1 serving 1/1 50 5.0 MB 1m40s FAST, shard 3, loads the functions: imports torch, 9 s"
        in lines
    )
    assert "host:2 silent 7s 1/1 50 5.0 MB 1m40s" in lines
    assert "train 0 DYNAMIC running 2/2 1 1,000 100 5 elements" in lines
    assert "train 0 900 90 9.0 MB 25% the trainer is slow" in lines
    assert "1m10s WARNING 5 elements are lost (job train, epoch 0)" in lines


def test_tables_fit_a_narrow_terminal():
    long = "a-job-with-a-name-of-many-characters-" * 3
    found = status([worker(long + ":1")], [job(long, clients=[client(sentence="late " * 30)])])
    tables = printed(found).splitlines()[1:]
    assert max(map(len, tables)) <= 80
    assert "".join(tables).count("late") == 30


def test_status_at_80_columns_folds_no_name_and_no_sentence():
    name = "anonymous:95891234567890abcdef1234567890ab"
    sentence = "The pipeline on the workers limits training: the trainer waited for elements."
    unnamed = msgspec.structs.replace(job(name, clients=[client(sentence=sentence)]), named=False)
    place = "ip-10-0-0-5.eu-central-1.compute.internal:41943"
    lines = printed(status([worker(place, tags=["FAST"])], [unnamed])).splitlines()
    assert max(map(len, lines)) <= 80
    assert place in lines
    assert [line.split()[:3] for line in lines if line.startswith("anonymous")] == [
        ["anonymous:9589...", "0", "DYNAMIC"],
        ["anonymous:9589...", "0", "900"],
    ]
    below = lines[[line.startswith("  what is slow: ") for line in lines].index(True) :][:2]
    assert " ".join("".join(below).removeprefix("  what is slow:").split()) == sentence


def test_old_epochs_of_one_job_do_not_hide_others():
    old = [epoch(str(number), state="finished") for number in range(500)]
    failed = epoch("500", state="failed", error="no such file")
    jobs = [job("first", old), job("second", [*old, failed, epoch("501")])]
    lines = [line.split() for line in printed(status([], jobs), 160).splitlines()]
    shown = [(line[0], line[1]) for line in lines if line[:1] in (["first"], ["second"])]
    assert shown[:3] == [("second", "501"), ("second", "500"), ("first", "499")]
    assert ["and", "999", "more", "epochs"] in lines
    file = io.StringIO()
    Console(file=file).print(status_tables(status([], jobs), 1))
    assert "and 1,001 more epochs" in file.getvalue()


def test_names_of_users_are_no_markup():
    assert "[red]x[/red]" in printed(status([worker()], [job("[red]x[/red]")]), 160)


def test_status_shows_a_running_service():
    with Service(2) as service:
        dataset = stoker.Dataset.range(1000).distribute(service.dispatcher.target, job_name="train")
        with dataset.iterator() as iterator:
            next(iterator)

            def shown() -> bool:
                done = stoker_command("status", service.dispatcher.target)
                assert (done.returncode, done.stderr) == (0, "")
                assert "\x1b" not in done.stdout
                sentence = done.stdout.splitlines()[0]
                return sentence.startswith("2 workers, ") and "1 client of 1 job" in sentence

            assert eventually(shown)


def test_fields_of_the_json_are_documented():
    documented = (Path(__file__).parents[3] / "docs" / "observing.md").read_text()
    rows = {
        st.Status: "status",
        st.WorkerStatus: "a worker",
        Loading: "loading of a worker, or null",
        st.JobStatus: "a job",
        st.EpochStatus: "an epoch",
        st.ClientStatus: "a client",
        st.DatasetStatus: "a dataset",
        st.EventStatus: "an event",
        st.TaskStatus: "details of an epoch: a task",
        st.DatasetDetails: "details of a dataset",
    }
    assert rows.keys() == {x for x in vars(st).values() if isinstance(x, type)}
    for kind, name in rows.items():
        [row] = [x for x in documented.splitlines() if x.startswith(f"| {name} |")]
        assert [field for field in kind.__struct_fields__ if f"`{field}`" not in row] == []


def test_json_is_the_state():
    with Service(1) as service:
        target = service.dispatcher.target
        dataset = stoker.Dataset.range(1000).distribute(target, job_name="train")
        with dataset.iterator() as iterator:
            next(iterator)
            done = stoker_command("status", target, "--json")
    found = msgspec.json.decode(done.stdout, type=st.Status)
    assert [each.name for each in found.jobs] == ["train"]
    assert msgspec.to_builtins(found) == json.loads(done.stdout)


def test_unreachable_dispatcher_is_one_line():
    done = stoker_command("status", "localhost:1")
    assert done.returncode == 1
    assert done.stderr.startswith("stoker: the dispatcher at localhost:1 cannot be reached")
    assert done.stderr.count("\n") == 1


def test_address_may_come_from_the_environment(monkeypatch):
    with DispatchServer() as dispatcher:
        monkeypatch.setenv("STOKER_DISPATCHER_ADDRESS", dispatcher.target)
        done = stoker_command("status")
    assert done.stdout.startswith("no worker is registered.")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("address", ("status", "nowhere:x")),
        ("address", ("jobs", "list", "nowhere:x")),
        ("address", ("datasets", "describe", "1", "nowhere:x")),
        ("dispatcher_address", ("drain", "localhost:1", "--dispatcher-address", "nowhere:x")),
    ],
)
def test_wrong_address_is_wrong_usage(name, words):
    result = CliRunner().invoke(app, words)
    message = f"stoker: `{name}` 'nowhere:x' has the port 'x', which is not a number\n"
    assert (result.exit_code, result.output) == (2, message)


def test_wrong_address_of_the_variable_names_it(monkeypatch):
    monkeypatch.setenv("STOKER_DISPATCHER_ADDRESS", "nowhere:x")
    result = CliRunner().invoke(app, ["top"])
    assert result.exit_code == 2
    assert result.output.startswith("stoker: STOKER_DISPATCHER_ADDRESS: `address` 'nowhere:x' has")


def test_a_request_that_the_dispatcher_does_not_know_is_one_line(monkeypatch):
    known = m.RegisterDataset | m.GetDataset | m.GetCluster | m.CloseClient
    monkeypatch.setattr(rpc, "decode_request", msgspec.msgpack.Decoder(known).decode)
    with DispatchServer() as dispatcher:
        done = stoker_command("status", dispatcher.target)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "GetStatus" in done.stderr


@pytest.mark.parametrize(
    "command", [("jobs", "describe"), ("jobs", "cancel"), ("datasets", "forget")]
)
def test_empty_name_is_wrong_usage(command: tuple[str, ...]):
    assert stoker_command(*command, "").returncode == 2

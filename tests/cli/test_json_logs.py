"""`--log-format json`: every line of both streams is a JSON object."""

import json
import os
import socket
import sys
import warnings
from typing import Any

import pytest

import stoker
from tests.cli.commands import Command, running

pytestmark = pytest.mark.timeout(120)

JSON = ("--log-format", "json")


def records(command: Command) -> list[dict[str, Any]]:
    """Return the lines of a process that has ended."""
    found = [json.loads(line) for line in command.output.splitlines()]
    assert all({"time", "level", "logger", "message"} <= each.keys() for each in found)
    return found


def test_every_line_of_a_session_is_json():
    def disturb(number: int) -> int:
        if number == 1:
            sys.stdout.write("printed\n")
            sys.stderr.write("{no json\n")
            os.write(2, b"native\n\n")
            warnings.warn("old", stacklevel=1)
        if number == 2:
            raise ValueError("no such image")
        if number == 3:
            os.abort()
        return number

    with running("dispatcher", "--port", "0", *JSON, STOKER_UNKNOWN="1") as dispatcher:
        address = dispatcher.wait_for(r"serves at grpc://(localhost:\d+)\"")[1]
        with running("worker", "--dispatcher", address, *JSON) as worker:
            worker.wait_for(f'"starting 1 worker process of the dispatcher at {address}"')
            worker.wait_for("serves at localhost")
            dataset = stoker.Dataset.range(3).map(disturb).distribute(address, job_name="train")
            assert list(dataset.ignore_errors()) == [0, 1]
            for line in ("printed", "no json", "native", "UserWarning: old", "no such image"):
                worker.wait_for(line)
            killing = (
                stoker.Dataset.range(3, 4)
                .map(disturb)
                .distribute(address, processing_mode="distributed_epoch", on_loss="raise")
            )
            with pytest.raises(stoker.errors.StokerError):
                list(killing)
            worker.wait_for("Fatal Python error: Aborted")
            worker.wait_for("was killed by SIGABRT")
    shown = records(worker)
    streams = {each["message"]: each["stream"] for each in shown if "stream" in each}
    assert streams["printed"] == "stdout"
    assert (streams["{no json"], streams["native"]) == ("stderr", "stderr")
    messages = [each["message"] for each in records(dispatcher)]
    assert f"dispatcher serves at grpc://{address}" in messages
    assert any("STOKER_UNKNOWN has no effect" in message for message in messages)
    assert {each["epoch"] for each in shown if "epoch" in each} == {0}
    tasks = [each["task"] for each in shown if "task" in each]
    assert tasks
    assert all(isinstance(task, str) for task in tasks)


def test_a_dispatcher_that_cannot_start_ends_with_json():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        dispatcher = Command("dispatcher", "--port", port, *JSON)
        assert dispatcher.end() == 1
    [error] = records(dispatcher)
    assert error["level"] == "ERROR"
    assert port in error["message"]


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        ((*JSON, "--port", "x"), {}),
        ((*JSON, "--port", "65535", "--processes", "2"), {}),
        (("--processes", "0"), {"STOKER_LOG_FORMAT": "json"}),
    ],
)
def test_wrong_usage_is_json(words, environ):
    command = Command("worker", "--dispatcher", "localhost:1", *words, **environ)
    assert command.end() == 2
    [error] = records(command)
    assert (error["level"], error["logger"]) == ("ERROR", "stoker.cli")

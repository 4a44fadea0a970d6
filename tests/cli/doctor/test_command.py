"""The command in a process of its own: output, exit codes, limits."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from stoker.cli.app import app
from tests.serving import Service


def doctor(*words, limits="", **environment):
    script = f"{limits} exec {sys.executable} -m stoker doctor {' '.join(words)}"
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_a_healthy_service_exits_with_0():
    with Service(1) as service:
        done = doctor(service.target)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"dispatcher address: {service.target.removeprefix('grpc://')}"
    assert lines[2].startswith("ok           dispatcher: answers in ")
    assert "1 of 1 can be read from here" in lines[3]
    assert lines[-1].startswith("no faults, ")
    assert "\x1b" not in done.stdout


def test_a_fault_exits_with_1_and_says_what_to_do(closed_port):
    address = f"localhost:{closed_port}"
    done = doctor(STOKER_DISPATCHER_ADDRESS=address)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"dispatcher address: {address}"
    assert lines[2].startswith("fault        dispatcher: 127.0.0.1")
    assert lines[2].endswith("refuses connections (port-refused)")
    assert lines[3].startswith("             fix: start `stoker dispatcher`")
    assert lines[-1].startswith("1 fault, ")


def test_json_has_every_finding():
    with Service(1) as service:
        done = doctor(service.target, "--json", limits="ulimit -n 200;")
    report = json.loads(done.stdout)
    assert (done.returncode, report["faults"]) == (0, 0)
    [few] = [each for each in report["findings"] if each["name"] == "few-open-files"]
    assert few["level"] == "warning"
    assert few["seen"].startswith("this process may open 200 files")
    assert few["fix"].startswith("raise the limit")


@pytest.mark.parametrize("address", ["localhost:", "http://localhost:1", "localhost:99999"])
def test_what_is_no_address_exits_with_2(address):
    result = CliRunner().invoke(app, ["doctor", address])
    assert result.exit_code == 2
    assert result.output.startswith("stoker: ")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("time", ["0s", "-1s", "3 parsecs", "999999999999h"])
def test_what_is_no_time_exits_with_2(time):
    result = CliRunner().invoke(app, ["doctor", "--timeout", time])
    assert result.exit_code == 2
    assert result.output.startswith(f"stoker: --timeout: {time!r} is not a ")

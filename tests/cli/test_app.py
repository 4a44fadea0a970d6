"""Options, help and errors of the `stoker` command."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import stoker
import stoker.cli.servers
from stoker.cli.app import app
from stoker.cli.options.options import TABLES
from stoker.service import DispatcherConfig


def test_version_is_the_package_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"stoker {stoker.__version__}\n"


def test_no_command_lists_the_commands():
    result = CliRunner().invoke(app, [])
    shown = ("status", "top", "jobs", "datasets", "drain", "doctor")
    for command in ("dispatcher", "worker", *shown, "demo"):
        assert command in result.output


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("dispatcher", [option.flag for option in TABLES["dispatcher"]]),
        ("worker", [option.flag for option in TABLES["worker"]]),
        ("worker", ["--dispatcher", "--tags", "--grace", "--cross-trainer-cache-bytes"]),
        ("status", ["--json"]),
        ("top", ["--interval"]),
        ("drain", ["--dispatcher-address", "--wait"]),
        ("demo", ["--directory"]),
        ("doctor", ["ADDRESS", "--json", "--timeout"]),
    ],
)
def test_help_lists_every_option(command, options):
    """In a terminal of 80 columns, no name is cut off."""
    result = CliRunner(env={"COLUMNS": "80", "TERM": "dumb"}).invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert [option for option in options if option not in result.output] == []


@pytest.mark.parametrize(
    "words",
    [
        (),
        *((command,) for command in ("dispatcher", "worker", "status", "top", "drain", "doctor")),
        ("demo",),
        *(("jobs", each) for each in ("list", "describe", "cancel")),
        *(("datasets", each) for each in ("list", "describe", "forget")),
    ],
)
def test_help_names_no_type_after_a_flag(words):
    result = CliRunner(env={"COLUMNS": "80", "TERM": "dumb"}).invoke(app, [*words, "--help"])
    flags = [line for line in result.output.splitlines() if line.startswith("│ --")]
    assert any("--help" in line for line in flags)
    assert [line for line in flags if "<bool>" in line] == []


def test_worker_requires_dispatcher():
    result = CliRunner().invoke(app, ["worker"])
    assert result.exit_code == 2
    assert "--dispatcher" in result.output


def test_a_dispatcher_that_fails_ends_with_code_1(monkeypatch):
    class FailingServer:
        target = "grpc://localhost:1"
        failure = stoker.errors.UnavailableError("the disk is full")

        def __init__(self, config: DispatcherConfig) -> None:
            self.config = config

        def join(self) -> None:
            """Return immediately: the server has stopped by itself."""

        def stop(self) -> None:
            """Do nothing: it is stopped."""

    monkeypatch.setattr(stoker.cli.servers, "DispatchServer", FailingServer)
    result = CliRunner().invoke(app, ["dispatcher"])
    assert (result.exit_code, result.stderr) == (1, "stoker: the disk is full\n")


def test_help_loads_no_server():
    code = (
        "import sys; from stoker.cli.app import app; names = ('grpclib', 'numpy', 'PIL')\n"
        "print([name for name in (*names, 'stoker.service.control.rpc') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_demo_without_pillow_names_it(tmp_path):
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        f"sys.argv = ['stoker', 'demo', '--directory', {str(tmp_path)!r}]\n"
        "from stoker.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "stoker: the demo needs Pillow: pip install 'stoker[demo]'\n"

"""Options, help and errors of the `stoker` command."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import stoker
from stoker.cli.app import app


def test_version_is_the_package_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"stoker {stoker.__version__}\n"


def test_no_command_lists_the_commands():
    result = CliRunner().invoke(app, [])
    words = ("dispatcher", "worker", "status", "top", "jobs", "datasets", "drain", "doctor", "demo")
    for command in words:
        assert command in result.output


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("dispatcher", ["--host", "--port", "--insecure", "--dispatcher-patience-ms"]),
        ("dispatcher", ["--work-dir", "--worker-addresses"]),
        ("worker", ["--dispatcher", "--host", "--port", "--processes", "--tags", "--insecure"]),
        ("worker", ["--data-transfer-protocol", "--shared-memory-bytes"]),
        ("status", ["--json"]),
        ("top", ["--interval"]),
        ("drain", ["--dispatcher-address", "--wait"]),
        ("demo", ["--directory"]),
        ("doctor", ["ADDRESS", "--json", "--timeout"]),
    ],
)
def test_help_lists_every_option(command, options):
    result = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert [option for option in options if option not in result.output] == []


def test_worker_requires_dispatcher():
    result = CliRunner().invoke(app, ["worker"])
    assert result.exit_code == 2
    assert "--dispatcher" in result.output


def test_help_loads_no_server():
    code = (
        "import sys; from stoker.cli.app import app\n"
        "print([name for name in ('grpclib', 'stoker.service', 'PIL') if name in sys.modules])"
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

"""Options, help and errors of the `stoker` command."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import stoker
from stoker.cli.app import app
from stoker.cli.options.servers import TABLES


def test_version_is_the_package_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"stoker {stoker.__version__}\n"


def test_no_command_lists_the_commands():
    result = CliRunner().invoke(app, [])
    for command in ("dispatcher", "worker", "demo", "doctor"):
        assert command in result.output


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("dispatcher", [option.flag for option in TABLES["dispatcher"]]),
        ("worker", [option.flag for option in TABLES["worker"]]),
        ("worker", ["--dispatcher", "--tags", "--grace", "--cross-trainer-cache-bytes"]),
        ("demo", ["--directory"]),
        ("doctor", ["ADDRESS", "--json", "--timeout"]),
    ],
)
def test_help_lists_every_option(command, options):
    """In a terminal of 80 columns, no name is cut off."""
    result = CliRunner(env={"COLUMNS": "80", "TERM": "dumb"}).invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert [option for option in options if option not in result.output] == []


def test_worker_requires_dispatcher():
    result = CliRunner().invoke(app, ["worker"])
    assert result.exit_code == 2
    assert "--dispatcher" in result.output


def test_help_loads_no_server():
    code = (
        "import sys; from stoker.cli.app import app; names = ('grpclib', 'numpy', 'PIL')\n"
        "print([name for name in (*names, 'stoker.service.rpc') if name in sys.modules])"
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

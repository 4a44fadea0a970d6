"""Shell completion of commands, flags and choices, without NumPy and the servers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = "import sys; sys.argv[0] = 'stoker'; from stoker.cli import main; main()"


def stoker(*words: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


def complete(shell: str, line: str) -> list[str]:
    """Return the words that a shell would offer at the end of `line`."""
    environ = {"_STOKER_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    if shell == "bash":
        environ |= {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    elif shell == "fish":
        environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    return stoker(**environ).replace('"', " ").split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_choices(shell):
    found = complete(shell, "stoker worker --log-level ")
    assert [word for word in found if word.isalpha()] == ["debug", "info", "warning", "error"]


def test_commands_flags_and_protocols_are_completed():
    assert complete("bash", "stoker work") == ["worker"]
    flags = complete("bash", "stoker dispatcher --worker-t")
    assert flags == ["--worker-timeout-ms"]
    assert complete("bash", "stoker worker --data-transfer-protocol t") == ["tcp"]


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bash_completions/stoker.sh"),
        ("zsh", ".zfunc/_stoker"),
        ("fish", ".config/fish/completions/stoker.fish"),
    ],
)
def test_install_completion_writes_the_script_of_the_shell(tmp_path: Path, shell, file):
    # typer's own switch: it takes the shell's name instead of looking at the parent process.
    environ = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    assert "completion installed" in stoker("--install-completion", shell, **environ)
    shown = stoker("--show-completion", shell, **environ)
    assert (tmp_path / file).read_text().strip() == shown.strip()


def test_completion_imports_neither_numpy_nor_servers():
    code = (
        "import atexit, sys\n"
        "heavy = ('numpy', 'grpclib', 'asyncio', 'fsspec', 'cloudpickle')\n"
        "heavy += ('stoker.service.control.rpc',)\n"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules]))\n"
    )
    environ = {"_STOKER_COMPLETE": "complete_bash", "COMP_WORDS": "stoker wor", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code + RUN],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["worker", "[]"]

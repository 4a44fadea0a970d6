"""`make` names a missing prerequisite in one line before it installs anything; the lanes of CI."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TOO_OLD = "exit 1"
WITHOUT_VENV = 'case "$2" in *venv*) exit 1;; esac'


@pytest.fixture
def project(tmp_path):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(project: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["make", "-C", project, *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("python", "message"),
    [
        (TOO_OLD, "stoker needs Python 3.11 or newer; {} is older or missing"),
        (
            WITHOUT_VENV,
            "stoker needs Python's venv module; on Debian and Ubuntu: apt-get install python3-venv",
        ),
    ],
)
@pytest.mark.parametrize("target", ["demo", "test"])
def test_unusable_python_is_one_line(project, python, message, target):
    fake = project / "python"
    fake.write_text(f"#!/bin/sh\n{python}\n")
    fake.chmod(0o755)
    done = make(project, target, f"PYTHON={fake}")
    assert done.returncode != 0
    messages = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert messages == [message.format(fake)]
    assert not (project / ".venv").exists()


def test_missing_python_is_one_line(project):
    done = make(project, "demo", "PYTHON=")
    assert "stoker needs Python 3.11 or newer, and none was found" in done.stdout
    assert done.returncode != 0


@pytest.mark.parametrize(
    "target", ["demo", "test", "test-slow", "test-adapters", "lint", "bench", "clean"]
)
def test_every_target_is_explained(project, target):
    assert f"make {target} " in make(project, "help").stdout


@pytest.mark.parametrize(
    ("failing", "code", "lanes"),
    [
        ("none", 0, ["test", "test-slow", "docs", "test-package", "test-adapters"]),
        ("test-slow", 2, ["test", "test-slow", "the lane test-slow failed"]),
    ],
)
def test_lanes_run_in_order_until_one_fails(tmp_path, failing, code, lanes):
    fake = tmp_path / "make"
    fake.write_text(f'#!/bin/sh\necho "$1"\ntest "$1" != {failing} || exit 2\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.splitlines()) == (code, lanes)

"""The units, manifests and command lines of docs/deployment.md, which nothing executes."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.service import DispatcherConfig, WorkerConfig
from tests.docs.session import ROOT

PAGE = (ROOT / "docs" / "deployment.md").read_text()
UNITS = re.findall(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", PAGE, re.DOTALL)

_CONFIGS = {"dispatcher": DispatcherConfig, "worker": WorkerConfig}
_OTHERS = {
    "dispatcher": {"config", "help"},
    "worker": {"config", "dispatcher", "grace", "help", "processes"},
}
"""Options of the commands that are no field of their configuration."""


def _commands() -> list[tuple[str, str]]:
    """Return the commands of the page, each with its arguments, in shell or in YAML."""
    joined = re.sub(r"\\\n\s*", "", PAGE)
    shell = re.findall(r"stoker (dispatcher|worker) ((?:--).*)", joined)
    return shell + re.findall(r"args: \[(dispatcher|worker), (.*)\]", joined)


def test_commands_have_options_that_exist() -> None:
    commands = _commands()
    assert len(commands) >= 12
    unknown = []
    for name, arguments in commands:
        fields = {field.name.replace("_", "-") for field in dataclasses.fields(_CONFIGS[name])}
        flags = set(re.findall(r"--([a-z-]+)", arguments.partition("`")[0]))
        unknown += [(name, flag) for flag in flags - fields - _OTHERS[name]]
    assert unknown == []


def test_stop_timeouts_exceed_the_grace_by_more_than_five_seconds() -> None:
    """SIGKILL follows the grace, which is 25 s by default, after `process.GRACE`."""
    waits = re.findall(
        r"(?:TimeoutStopSec=|--stop-timeout |terminationGracePeriodSeconds: )(\d+)", PAGE
    )
    assert len(waits) == 4
    assert all(int(seconds) > 25 + 5 for seconds in waits)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize(("name", "unit"), UNITS, ids=[name for name, _ in UNITS])
def test_systemd_accepts_the_units(tmp_path: Path, name: str, unit: str) -> None:
    path = tmp_path / name
    path.write_text(unit.replace("/opt/stoker/bin/stoker", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=50
    )
    assert name not in done.stderr
    assert done.returncode == 0, done.stderr


def test_both_units_are_found() -> None:
    assert [name for name, _ in UNITS] == ["stoker-dispatcher.service", "stoker-worker.service"]


@pytest.mark.parametrize(("name", "unit"), UNITS, ids=[name for name, _ in UNITS])
def test_units_do_not_repeat_a_value_that_is_not_valid(name: str, unit: str) -> None:
    assert "RestartPreventExitStatus=2" in unit.splitlines(), name

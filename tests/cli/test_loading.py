"""A worker process that imports a slow module says so to the trainer, in its log and in status."""

import importlib
import json
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

import stoker
from stoker.service.client import shell
from tests.cli.commands import running, running_dispatcher
from tests.cli.status.test_status import stoker_command
from tests.serving import eventually

pytestmark = pytest.mark.timeout(120)

MODULE = """
import pathlib, time
while not pathlib.Path({finish!r}).exists():
    time.sleep(0.01)
"""


def test_an_import_is_in_the_warning_the_log_and_the_status(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(shell, "STALL_SECONDS", 0.2)
    caplog.set_level(logging.WARNING, "stoker.client")
    finish = tmp_path / "finish"
    (tmp_path / "slow_module_of_test.py").write_text(MODULE.format(finish=str(finish)))

    def double(x: int) -> int:
        importlib.import_module("slow_module_of_test")
        return 2 * x

    with (
        running_dispatcher() as address,
        running("worker", "--dispatcher", address, PYTHONPATH=str(tmp_path)) as worker,
        ThreadPoolExecutor(1) as thread,
    ):
        place = worker.wait_for(r"worker 0 \(process \d+\) serves at (\S+:\d+)\n")[1]
        elements = thread.submit(list, stoker.Dataset.range(3).map(double).distribute(address))
        try:
            worker.wait_for(r"a task loads the functions: imports slow_module_of_test, \d+ s  \[")
            text = f"waiting for worker {place} (loads the functions: imports slow_module_of_test, "
            assert eventually(lambda: text in caplog.text)
            shown = stoker_command("status", address).stdout
            assert "loads the functions: imports slow_module_of_test, " in shown
            [found] = json.loads(stoker_command("status", address, "--json").stdout)["workers"]
            assert found["loading"]["module"] == "slow_module_of_test"
            assert found["loading"]["seconds"] > 0
        finally:
            finish.touch()
        assert elements.result(60) == [0, 2, 4]

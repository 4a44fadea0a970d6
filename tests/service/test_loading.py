"""Tasks whose functions import a module that takes long."""

import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stoker
from stoker.service.loading import Loading, imported_module
from stoker.service.worker.pipelines import pipeline as pipelines
from stoker.service.worker.pipelines import task_meter
from tests.service.worker.pipelines.test_pipeline import _Host
from tests.serving import eventually

NAME = "slow_package_of_test"


@pytest.fixture
def finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Make a package `NAME`, whose module `inner` is imported until the event is set."""
    event = threading.Event()
    monkeypatch.setitem(sys.modules, "gate_of_test", SimpleNamespace(event=event))
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "__init__.py").write_text(f"import {NAME}.inner\nNUMBER = 5\n")
    (tmp_path / NAME / "inner.py").write_text("import gate_of_test\ngate_of_test.event.wait(30)\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield event
    event.set()
    for name in (NAME, f"{NAME}.inner"):
        sys.modules.pop(name, None)


class Module:
    """A module that a pickled function refers to; the test itself does not import it."""

    NUMBER = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (NAME,)


def _unpickled(parallel: int | None) -> stoker.Dataset:
    module = Module()
    return stoker.Dataset.range(3).map(lambda x: x + module.NUMBER, num_parallel_calls=parallel)


def _called(parallel: int | None) -> stoker.Dataset:
    def add(x: int) -> int:
        return x + int(importlib.import_module(NAME).NUMBER)

    return stoker.Dataset.range(3).map(add, num_parallel_calls=parallel)


def test_the_outermost_import_of_any_thread_is_named(finish):
    assert imported_module() == ""
    thread = threading.Thread(target=importlib.import_module, args=(NAME,))
    thread.start()
    assert eventually(lambda: f"{NAME}.inner" in sys.modules)
    assert imported_module() == NAME
    finish.set()
    thread.join()
    assert imported_module() == ""


@pytest.mark.parametrize("parallel", [None, 2])
@pytest.mark.parametrize("dataset", [_unpickled, _called])
def test_a_task_says_and_logs_once_what_its_functions_import(
    dataset, parallel, finish, monkeypatch, caplog
):
    monkeypatch.setattr(pipelines, "LOGGED_IMPORT_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "stoker.worker")
    host = _Host(dataset(parallel))
    task = host.run()

    def imports() -> bool:
        loading = task.measure().loading
        return loading is not None and loading.module == NAME

    assert eventually(imports)
    assert imports()
    [record] = [x for x in caplog.records if x.message.startswith("a task loads")]
    assert record.message == f"a task loads the functions: imports {NAME}, 0 s"
    assert record.__dict__["worker"] == host.address
    finish.set()
    assert host.ended.wait(10)
    task.join(10)
    assert host.elements == [5, 6, 7]
    assert task.measure().loading is None


def test_seconds_are_those_of_opening_and_computing(monkeypatch):
    now, module = 100.0, ""
    monkeypatch.setattr(task_meter, "imported_module", lambda: module)
    meter = task_meter.TaskMeter({}, lambda: now)
    now += 3
    assert meter.evidence().loading == Loading("", 3.0)
    module = "torch"
    assert meter.evidence().loading == Loading("torch", 3.0)
    meter.begin()
    with meter.times.reading():
        with meter.times.lacking_split():
            now += 60
        now += 2
        assert meter.evidence().loading == Loading("torch", 5.0)
        module = ""
        assert meter.evidence().loading is None, "a slow first element is no import"
    module = "torch"
    meter.has_output = True
    assert meter.evidence().loading is None


@pytest.mark.parametrize(
    ("loading", "text"),
    [
        (Loading("torch", 40.4), "loads the functions: imports torch, 40 s"),
        (Loading("", 7.0), "opens the pipeline, 7 s"),
    ],
)
def test_text_names_the_module_and_the_seconds(loading, text):
    assert str(loading) == text

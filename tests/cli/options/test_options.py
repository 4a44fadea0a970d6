"""The options of the servers are the fields of their configurations."""

import dataclasses
import inspect

import pytest

import stoker.cli.app
from stoker.cli.options.flags import PANELS, panel_of
from stoker.cli.options.options import TABLES, LogFields, ProcessFields, attribute_texts
from stoker.service import DispatcherConfig, WorkerConfig

CLASSES = {
    "dispatcher": (DispatcherConfig, LogFields),
    "worker": (WorkerConfig, ProcessFields, LogFields),
}
FIELDS = [
    (table, cls, field.name)
    for table, classes in CLASSES.items()
    for cls in classes
    for field in dataclasses.fields(cls)
]


@pytest.mark.parametrize(("table", "cls", "name"), FIELDS)
def test_every_field_has_a_flag_a_group_and_a_help_text(table, cls, name):
    [option] = [option for option in TABLES[table] if option.name == name]
    assert name in inspect.signature(getattr(stoker.cli.app, table)).parameters
    assert panel_of(option) in {*PANELS} - {"Other"}
    assert len(attribute_texts(cls)[name]) > 5


def test_there_are_no_other_options():
    for table, classes in CLASSES.items():
        names = [field.name for cls in classes for field in dataclasses.fields(cls)]
        assert [option.name for option in TABLES[table]] == names


def test_names_are_those_of_the_field():
    [option] = [option for option in TABLES["dispatcher"] if option.name == "worker_timeout_ms"]
    assert option.flag == "--worker-timeout-ms"
    assert option.variable == "STOKER_WORKER_TIMEOUT_MS"

"""Each processing mode is known in its rooms, and in few files outside of them.

The names of a mode are the public names, fields and strings that only its rooms define. A file
outside knows a mode if it has one of these names in its code, as a string or in backticks.
"""

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

import stoker

ROOT = Path(stoker.__file__).parent
MOST_OUTSIDE = 8

ROOMS = {
    "off": ["service/dispatcher/modes/off.py"],
    "dynamic": [
        "service/dispatcher/modes/dynamic/",
        "service/dispatcher/splits/free_splits.py",
        "service/dispatcher/splits/split_assigner.py",
        "service/messages/dynamic.py",
        "service/worker/tasks/split_queue.py",
        "service/worker/tasks/task_splits.py",
    ],
    "static": [
        "service/dispatcher/modes/static/",
        "service/messages/static.py",
        "service/worker/tasks/shard_files.py",
    ],
    "coordinated": [
        "service/client/orders/round_order.py",
        "service/client/orders/round_reading.py",
        "service/dispatcher/modes/coordinated/",
        "service/messages/coordinated.py",
        "service/worker/buffers/round_robin.py",
    ],
    "cache": ["service/dispatcher/modes/cache.py", "service/worker/buffers/sliding_window.py"],
    "deterministic": [
        "service/api/deterministic.py",
        "service/client/orders/position_order.py",
        "service/client/wants/",
        "service/dispatcher/modes/deterministic/",
        "service/messages/deterministic.py",
        "service/worker/pipelines/row_registry.py",
        "service/worker/pipelines/turn_pipeline.py",
        "service/worker/pipelines/turn_source.py",
        "service/worker/wants/",
    ],
}
"""The files and folders of each mode."""

OUTSIDE = {
    "off": ["service/dispatcher/modes/modes.py"],
    "dynamic": [
        "service/dispatcher/iterations/assignment.py",
        "service/dispatcher/iterations/iterations.py",
        "service/dispatcher/logic.py",
        "service/dispatcher/modes/modes.py",
        "service/dispatcher/modes/states.py",
        "service/messages/worker.py",
        "service/worker/logic.py",
        "service/worker/tasks/task.py",
    ],
    "static": [
        "service/dispatcher/modes/mode.py",
        "service/dispatcher/modes/modes.py",
        "service/dispatcher/modes/states.py",
        "service/messages/worker.py",
        "service/worker/actions.py",
        "service/worker/logic.py",
        "service/worker/pipelines/pipeline.py",
    ],
    "coordinated": [
        "service/client/logic.py",
        "service/client/tasks.py",
        "service/dispatcher/modes/modes.py",
        "service/dispatcher/modes/state.py",
        "service/messages/client.py",
        "service/messages/tasks.py",
        "service/worker/buffers/buffer_policies.py",
    ],
    "cache": [
        "dataset/iterator.py",
        "service/dispatcher/modes/modes.py",
        "service/worker/buffers/buffer_policies.py",
    ],
    "deterministic": [
        "service/api/read_options.py",
        "service/client/logic.py",
        "service/dispatcher/modes/modes.py",
        "service/dispatcher/modes/states.py",
        "service/messages/worker.py",
        "service/worker/buffers/buffer_policies.py",
        "service/worker/logic.py",
        "service/worker/pipelines/task_pipelines.py",
    ],
}
"""The files outside that know a mode: add to them only what cannot be in its rooms."""

ARGUMENTS = {"num_consumers", "consumer_index", "finite_coordinated", "use_cross_trainer_cache"}
"""Words of users for consumers and caches. `JobParameters` and hellos have them for all modes, of
which several may read one; so no mode owns them, and their files are listed apart."""

ARGUMENTS_OUTSIDE = [
    "cli/status/tables.py",
    "cli/status/view.py",
    "dataset/dataset.py",
    "dataset/options.py",
    "dataset/state.py",
    "service/api/consumers.py",
    "service/api/distribution.py",
    "service/api/read_options.py",
    "service/api/reader_node.py",
    "service/api/source.py",
    "service/client/registration.py",
    "service/dispatcher/entities/entities.py",
    "service/dispatcher/iterations/iterations.py",
    "service/dispatcher/iterations/jobs.py",
    "service/dispatcher/modes/modes.py",
    "service/dispatcher/peers/clients.py",
    "service/dispatcher/peers/status.py",
    "service/dispatcher/state/clients.py",
    "service/messages/client.py",
    "service/messages/tasks.py",
    "service/messages/worker.py",
    "service/rules/checks.py",
    "service/status.py",
    "service/worker/buffers/buffer.py",
    "service/worker/buffers/buffer_policies.py",
    "service/worker/logic.py",
    "service/worker/readers/client_connections.py",
    "service/worker/tasks/reader.py",
    "service/worker/tasks/reader_state.py",
    "wire/frames.py",
]

INTERFACE = {"mode", "modes", "state", "states"}
"""The modules of `dispatcher/modes/` that others may import."""

SOURCES = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.rglob("*.py")}


@functools.cache
def _nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def _files(mode: str) -> set[str]:
    """Return the files of the rooms of a mode."""
    rooms = ROOMS[mode]
    return {
        name
        for name in SOURCES
        if any(name == room or (room.endswith("/") and name.startswith(room)) for room in rooms)
    }


@functools.cache
def _defined(source: str) -> set[str]:
    """Return all names that a file defines, also those of arguments and variables."""
    names: set[str] = set()
    for node in _nodes(source):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def _public(source: str) -> set[str]:
    """Return the classes, functions, constants, fields and attributes that a file defines.

    With its strings that look like names, such as those of statistics.
    """
    names: set[str] = set()
    for node in _nodes(source):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef | ast.Module):
            names.update(
                target.id
                for entry in node.body
                if isinstance(entry, ast.Assign | ast.AnnAssign)
                for target in ast.walk(entry)
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
            )
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return {x for x in names | _strings(source) if not x.startswith("_")}


def _strings(source: str) -> set[str]:
    constants = (x for x in _nodes(source) if isinstance(x, ast.Constant))
    values = (x.value for x in constants if isinstance(x.value, str))
    return {value for value in values if re.fullmatch(r"[a-z]+(_[a-z]+)+", value)}


def _own(mode: str) -> set[str]:
    """Return the public names that only the rooms of a mode define."""
    inside = _files(mode)
    others = {x for file in SOURCES.keys() - inside for x in _defined(SOURCES[file])}
    of_modes = {x for other in ROOMS if other != mode for f in _files(other) for x in PUBLIC[f]}
    return {x for file in inside for x in PUBLIC[file]} - others - of_modes


WORDS = {name: set(re.findall(r"\w+", source)) for name, source in SOURCES.items()}


def _knows(file: str, own: set[str]) -> bool:
    """Return whether a file has one of the names in its code, as a string or in backticks."""
    return not own.isdisjoint(WORDS[file]) and not own.isdisjoint(_used(SOURCES[file]))


@functools.cache
def _used(source: str) -> set[str]:
    names: set[str] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            names.add(token.string)
        else:
            names.update(re.findall(r"[`.](\w+)(?=[`.])", token.string))
            names.update(re.findall(r"^[\"'](\w+)[\"']$", token.string))
    return names


PUBLIC = {name: _public(source) for name, source in SOURCES.items()}


@pytest.mark.parametrize("mode", ROOMS)
def test_a_mode_is_known_in_few_files_outside_its_rooms(mode: str):
    inside, own = _files(mode), _own(mode)
    assert own, "the rooms of the mode define nothing"
    known = sorted(file for file in SOURCES.keys() - inside if _knows(file, own))
    assert known == OUTSIDE[mode], {file: sorted(own & _used(SOURCES[file])) for file in known}
    assert len(known) <= MOST_OUTSIDE


def test_modes_are_imported_through_their_interface():
    package = "stoker.service.dispatcher.modes"
    imported = {
        (name, module)
        for name, source in SOURCES.items()
        if not name.startswith("service/dispatcher/modes/")
        for module in re.findall(rf"{package}\.([\w.]+)", source)
    }
    assert not {(name, module) for name, module in imported if module not in INTERFACE}


def test_rooms_and_files_exist():
    for mode, rooms in ROOMS.items():
        assert all(any(name.startswith(room) for name in SOURCES) for room in rooms), mode


def test_arguments_of_users_are_known_in_no_more_files():
    inside = set().union(*map(_files, ROOMS))
    outside = SOURCES.keys() - inside
    assert sorted(x for x in outside if _knows(x, ARGUMENTS)) == ARGUMENTS_OUTSIDE

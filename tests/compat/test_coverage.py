"""docs/compat.md lists every public name of tf.data that is absent, and no other."""

import re
from pathlib import Path
from typing import Any

import pytest

from stoker.compat import tf
from tests.compat.tensorflow_names import PUBLIC

DOCUMENT = Path(__file__).parents[2] / "docs" / "compat.md"
_ROW = re.compile(r"^\| `tf\.([\w.]+)` \| (.+?) \| ", re.MULTILINE)


def documented() -> dict[str, set[str]]:
    """Return the names in the table of absent names, by the object that has them in TensorFlow."""
    text = DOCUMENT.read_text()
    table = text.partition("## Names of tf.data that are absent\n")[2].partition("\n## ")[0]
    assert table, "the heading of the table has changed"
    found: dict[str, set[str]] = {}
    for owner, names in _ROW.findall(table):
        found.setdefault(owner, set()).update(re.findall(r"`(\w+)`", names))
    return found


def here(path: str) -> Any:
    value: Any = tf
    for part in path.split("."):
        value = getattr(value, part)
    return value


def absent(path: str) -> set[str]:
    owner = here(path)
    owner = owner() if path.endswith("Options") else owner
    fields = set(getattr(owner, "__dataclass_fields__", ()))
    return {name for name in PUBLIC[path].split() if not (name in fields or hasattr(owner, name))}


@pytest.mark.parametrize("path", [path for path in PUBLIC if "CrossTrainer" not in path])
def test_absent_names_are_those_in_the_document(path):
    assert absent(path) == documented().get(path, set())


def test_document_names_only_objects_of_tensorflow():
    assert documented().keys() <= PUBLIC.keys()
    for path, names in documented().items():
        assert names <= set(PUBLIC[path].split())


def test_cross_trainer_cache_has_its_attribute():
    cache = tf.data.experimental.service.CrossTrainerCache("one")
    assert [cache.trainer_id] == ["one"]


@pytest.mark.parametrize("path", ["data", "data.experimental", "data.experimental.service"])
def test_modules_list_what_they_have(path):
    public = {name for name in PUBLIC[path].split() if hasattr(here(path), name)}
    assert public == set(here(path).__all__)

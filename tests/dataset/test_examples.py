"""The examples in the docstrings of the dataset layer are true."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import stoker
import stoker.dataset

MODULES = [
    module.name for module in pkgutil.walk_packages(stoker.dataset.__path__, "stoker.dataset.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    module = importlib.import_module(name)
    names = {"Dataset": stoker.Dataset, "stoker": stoker}
    assert doctest.testmod(module, extraglobs=names).failed == 0


def test_every_method_of_a_dataset_has_an_example() -> None:
    finder = doctest.DocTestFinder()
    without = [
        name
        for name, method in inspect.getmembers(stoker.Dataset)
        if not name.startswith("_") and not any(test.examples for test in finder.find(method, name))
    ]
    assert without == ["distribute", "node", "options"]

"""The examples in the docstrings of the dataset layer are true."""

import doctest
import importlib
import pkgutil

import pytest

import stoker.dataset

MODULES = [
    module.name for module in pkgutil.walk_packages(stoker.dataset.__path__, "stoker.dataset.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_the_fluent_api_has_examples() -> None:
    module = importlib.import_module("stoker.dataset.dataset")
    assert doctest.testmod(module).attempted > 20

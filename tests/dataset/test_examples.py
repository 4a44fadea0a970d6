"""Every method of Dataset has an example in its docstring; tests/docs runs them."""

import doctest
import inspect

import stoker


def test_every_dataset_method_has_an_example() -> None:
    finder = doctest.DocTestFinder()
    without = [
        name
        for name, method in inspect.getmembers(stoker.Dataset)
        if not name.startswith("_") and not any(test.examples for test in finder.find(method, name))
    ]
    assert without == ["distribute", "node", "options"]

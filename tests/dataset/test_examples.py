"""Every method of a dataset shows how it is used; tests/docs runs the examples."""

import doctest
import inspect

import stoker


def test_every_method_of_a_dataset_has_an_example() -> None:
    finder = doctest.DocTestFinder()
    without = [
        name
        for name, method in inspect.getmembers(stoker.Dataset)
        if not name.startswith("_") and not any(test.examples for test in finder.find(method, name))
    ]
    assert without == ["distribute", "node", "options"]

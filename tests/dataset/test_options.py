"""Options of a dataset."""

from typing import Any

import pytest

from stoker import Dataset, Options
from stoker.errors import InvalidArgumentError


def test_later_options_replace_what_they_set() -> None:
    dataset = Dataset.range(3).with_options(Options(seed=1, threads=2))
    merged = dataset.with_options(Options(threads=3, per_lane=True)).map(abs).options()
    assert merged == Options(seed=1, threads=3, per_lane=True)
    assert dataset.options() == Options(seed=1, threads=2)


@pytest.mark.parametrize(
    "wrong", [{"seed": 1.5}, {"seed": True}, {"threads": 0}, {"threads": "2"}, {"per_lane": 1}]
)
def test_wrong_values_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"`{next(iter(wrong))}` must be"):
        Options(**wrong)


def test_with_options_takes_options_only() -> None:
    with pytest.raises(InvalidArgumentError, match=r"stoker\.Options"):
        Dataset.range(3).with_options({"seed": 1})  # type: ignore[arg-type]

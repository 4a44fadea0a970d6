"""What notebooks show: small HTML tables, whose texts are escaped."""

import json
import pickle

import msgspec

from stoker import Dataset
from stoker.dataset.reports.html_table import Stats, html_table

ATTACK = "<script>alert('&')</script>"
ESCAPED = "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;"


def _hostile() -> Dataset:
    """Return a dataset whose function and file are named by a user."""

    def function(x: int) -> int:
        return x

    function.__name__ = ATTACK
    found: dict[str, Dataset] = {}
    code = compile("dataset = Dataset.range(3).map(function)", "<b>train.py", "exec")
    exec(code, {"Dataset": Dataset, "function": function}, found)
    return found["dataset"]


def test_cells_and_sentence_are_escaped() -> None:
    table = html_table([ATTACK], [[ATTACK], [1]], ATTACK)
    assert table.count(ESCAPED) == 3
    assert "<script" not in table


def test_a_dataset_shows_its_stages() -> None:
    shown = _hostile()._repr_html_()
    for text in (f"map({ESCAPED})", "&lt;b&gt;train.py:1", "range", "UnknownSpec()"):
        assert text in shown
    assert "<script" not in shown
    assert "<b>" not in shown


def test_an_explanation_shows_stages_and_sentence() -> None:
    dataset = _hostile()
    assert "Not read yet" in dataset.explain()._repr_html_()
    list(dataset)
    shown = dataset.explain()._repr_html_()
    for text in (f"map({ESCAPED})", "&lt;b&gt;train.py:1", "P50"):
        assert text in shown
    assert "<script" not in shown


def test_statistics_are_a_dict_that_shows_tables() -> None:
    with _hostile().iterator() as iterator:
        list(iterator)
        stats = iterator.stats()
    assert isinstance(stats, Stats)
    shown = stats._repr_html_()
    for text in ("elements", "sentence", "busy", ESCAPED):
        assert text in shown
    assert "<script" not in shown
    plain = dict(stats)
    assert stats == plain
    assert repr(stats) == repr(plain)
    assert json.loads(json.dumps(stats)) == plain
    assert msgspec.json.encode(stats) == msgspec.json.encode(plain)
    assert type(pickle.loads(pickle.dumps(stats))) is Stats

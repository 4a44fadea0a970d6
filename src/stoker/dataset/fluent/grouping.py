"""The fluent API: elements gathered into datasets and folded into values."""

from stoker.dataset.fluent.fluent import Fluent


class Grouping(Fluent):
    """Methods for elements gathered into datasets and folded into values."""

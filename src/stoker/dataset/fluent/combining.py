"""The fluent API: several datasets as one."""

from stoker.dataset.fluent.fluent import Fluent


class Combining(Fluent):
    """Methods for several datasets as one."""

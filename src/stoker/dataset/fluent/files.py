"""The fluent API: what stands in files."""

from stoker.dataset.fluent.fluent import Fluent


class Files(Fluent):
    """Methods for what stands in files."""

"""Names of files as bytes."""

import numpy as np

from stoker import Dataset
from stoker.dataset.nodes import EncodedNames
from stoker.elements.spec import TensorSpec
from tests.dataset.verbs import check_verbs


def test_names_are_bytes() -> None:
    names = ["a.txt", "caf\udce9", "grün"]

    def make() -> Dataset:
        return Dataset(EncodedNames(input=Dataset.from_tensor_slices(names).node))

    assert check_verbs(make) == [b"a.txt", b"caf\xe9", "grün".encode()]
    assert make().element_spec == TensorSpec((), np.dtype(object))
    assert make().cardinality() == 3

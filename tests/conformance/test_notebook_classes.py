"""Namedtuples and dataclasses of a notebook come back as the notebook's own classes."""

import subprocess
import sys
import textwrap

CLASSES = """
    import collections, dataclasses, typing, stoker
    import numpy as np

    class Typed(typing.NamedTuple):
        x: int

        def double(self):
            return 2 * self.x

    Plain = collections.namedtuple("Plain", "x")

    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        x: int

    class Outer:
        @dataclasses.dataclass
        class Inner:
            x: int

    @dataclasses.dataclass
    class Base:
        x: int
        scale: typing.ClassVar[int] = 3

    @dataclasses.dataclass
    class Derived(Base):
        y: "Typed"

    def local_class():
        @dataclasses.dataclass
        class Local:
            x: int
        return Local

    Local = local_class()

    def make(i):
        return (Typed(i), Plain(i), Frozen(i), Outer.Inner(i), Derived(i, Typed(i)), Local(i))

    def read(cluster, function, **settings):
        [element] = stoker.Dataset.range(1).map(function).distribute(cluster, **settings)
        return element
"""


def _run(cells: str) -> None:
    """Run the code as a main module, as a notebook's cells are."""
    code = textwrap.dedent(CLASSES) + textwrap.dedent(cells)
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr


def test_elements_have_the_notebooks_own_classes() -> None:
    _run("""
        with stoker.LocalCluster(1) as cluster:
            for protocol in ("shm", "tcp"):
                element = read(cluster, make, data_transfer_protocol=protocol)
                assert [type(x) for x in element] == [
                    Typed, Plain, Frozen, Outer.Inner, Derived, Local
                ], element
                assert element == make(0)
                assert type(element[4].y) is Typed
                assert element[0].double() == 0
    """)


def test_a_cell_that_is_run_again_defines_the_class_that_counts() -> None:
    _run("""
        cell = "class Point(typing.NamedTuple):\\n    x: int\\ndef point(i): return Point(i)"
        other = cell.replace("x: int", "x: int\\n    y: int = 5")
        with stoker.LocalCluster(1) as cluster:
            for source in (cell, cell, other, cell):
                exec(source)
                element = read(cluster, point)
                assert type(element) is Point, (source, type(element))
                assert element == point(0)
    """)


def test_a_class_that_only_the_worker_has_is_generated() -> None:
    _run("""
        def inside(i):
            @dataclasses.dataclass
            class Hidden:
                x: int
            return Hidden(i)

        with stoker.LocalCluster(1) as cluster:
            element = read(cluster, inside)
        assert (type(element).__name__, element.x) == ("Hidden", 0)
    """)


def test_two_classes_of_one_name_and_fields_are_not_confused() -> None:
    _run("""
        One, Two = local_class(), local_class()

        with stoker.LocalCluster(1) as cluster:
            one, two = read(cluster, lambda i: (One(1), Two(2)))
        assert type(one) not in (One, Two)
        assert (one.x, two.x) == (1, 2)
    """)


def test_a_peer_names_no_class_to_use() -> None:
    _run("""
        @dataclasses.dataclass
        class Unused:
            x: int

        def inside(i):
            return dataclasses.make_dataclass("Unused", ["x"])(i)

        with stoker.LocalCluster(1) as cluster:
            element = read(cluster, inside)
        assert type(element) is not Unused
        assert type(element).__name__ == "Unused"
    """)

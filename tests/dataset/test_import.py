"""`import stoker` is fast and loads few modules."""

import resource
import subprocess
import sys

import pytest

import stoker

HEAVY = ("grpclib", "h2", "fsspec", "typer", "rich", "cloudpickle", "numpy.random")


def test_import_loads_none_of_the_heavy_packages() -> None:
    code = f"import stoker, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def seconds_to_run(code: str) -> float:
    """Return the CPU seconds of a Python process: they do not depend on the machine's load."""

    def children_cpu_seconds() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = children_cpu_seconds()
    subprocess.run([sys.executable, "-c", code], check=True)
    return children_cpu_seconds() - before


@pytest.mark.alone
def test_import_takes_at_most_twice_as_long_as_numpy() -> None:
    # The minimum of seven rounds; the programs alternate so that noise affects all alike.
    best = {"": 9.0, "import numpy": 9.0, "import stoker": 9.0}
    for _ in range(7):
        for code, known in list(best.items()):
            best[code] = min(known, seconds_to_run(code))
    numpy, ours = (best[code] - best[""] for code in ("import numpy", "import stoker"))
    assert ours <= 2 * numpy, f"import stoker {ours * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms"


def test_every_public_name_exists() -> None:
    public = set(stoker.__all__) - {"LocalCluster"}
    assert [name for name in public if not hasattr(stoker, name)] == []
    assert stoker.SHARD_HINT == stoker.AUTOTUNE == stoker.INFINITE_CARDINALITY == -1
    assert stoker.UNKNOWN_CARDINALITY == -2
    assert not hasattr(stoker, "no_such_name")


def test_windows_is_refused_by_name() -> None:
    code = "import sys; sys.platform = 'win32'; import stoker"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "stoker does not run on Windows" in result.stderr

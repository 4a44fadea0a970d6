"""Every row that `compare.py` measures, by name; measures rows with the `stoker` that is imported.

    python benchmarks/rows.py --list
    python benchmarks/rows.py --measure ROW SECONDS
    python benchmarks/rows.py --serve GROUP ...

A row reads `stoker` through its public API alone and needs no peer. Its group (the first part of
its name) names the module that defines it.
"""

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import sys
from typing import Any

from harness import Row

GROUPS = {
    "elements": "local.element_streams",
    "pipelines": "bench_pipelines",
    "csv": "local.csv_files",
    "interleave": "local.small_files",
    "stored": "local.stored",
    "jpeg": "bench_jpeg",
    "autotune": "bench_autotune",
    "service": "bench_service",
    "compression": "bench_compression",
    "waiting": "bench_waiting",
}


def rows_of(group: str) -> dict[str, Row]:
    """Return the rows of one group by name; import no other group's module."""
    module = importlib.import_module(GROUPS[group])
    return {row.name: row for row in module.comparison_rows()}


def find(name: str) -> Row:
    """Return one row."""
    return rows_of(name.split("/", maxsplit=1)[0])[name]


def prepare(name: str) -> None:
    """Make the files that a row reads."""
    make = find(name).prepare
    if make is not None:
        make()


def serve(groups: list[str]) -> None:
    """Measure the rows that arrive on stdin, each in a fork of this process.

    A fork has its modules imported, which would otherwise take half a second in each of the 2,000
    measurements of `compare.py`, and is as fresh as a new process in all else. The first line of
    output names the imported stoker. Then each request ``[row, seconds]`` has one answer: the
    fields of a `Figure`, or ``{"error": ...}``. Where the seconds are null, the row's files are
    made and the answer is empty. All are JSON.
    """
    import stoker

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # rows may print
    for group in groups:
        with contextlib.suppress(ImportError):  # then its rows report it
            importlib.import_module(GROUPS[group])
    _answer(answers, {"stoker": stoker.__file__})
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _answer(answers, _measured(*json.loads(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            code = os.waitstatus_to_exitcode(status)
            _answer(answers, {"error": f"the process ended with {code}"})


def _measured(name: str, seconds: float | None) -> dict[str, Any]:
    try:
        if seconds is None:
            prepare(name)
            return {}
        return dataclasses.asdict(find(name).measure(seconds))
    except Exception as error:  # noqa: BLE001 - the table reports it, and other rows go on
        return {"error": f"{type(error).__name__}: {error}"}


def _answer(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def listed() -> list[dict[str, object]]:
    """Describe every row, in the order of the table."""
    return [
        {"name": row.name, "seconds": row.seconds, "default": row.default}
        for group in GROUPS
        for row in rows_of(group).values()
    ]


def main() -> None:
    """List rows, measure one, or serve measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--list", action="store_true")
    action.add_argument("--measure", nargs=2, metavar=("ROW", "SECONDS"))
    action.add_argument("--serve", nargs="+", metavar="GROUP", choices=GROUPS)
    options = parser.parse_args()
    if options.list:
        print(json.dumps(listed()))
    elif options.measure:
        name, seconds = options.measure
        prepare(name)
        print(find(name).measure(float(seconds)), flush=True)
        os._exit(0)  # as in a fork: without waiting for threads
    else:
        serve(options.serve)


if __name__ == "__main__":
    main()

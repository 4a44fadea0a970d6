"""Source lines of this program in the traceback of a worker, which has no copy of its cells."""

import linecache
import re

import msgspec

from stoker.dataset.tree.call_site import cell_of
from stoker.errors import ErrorRecord

_FRAME_WITHOUT_SOURCE = re.compile(
    r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.*)\n(?!    )', re.MULTILINE
)


def with_source_lines(record: ErrorRecord) -> ErrorRecord:
    """Add the source lines that the worker lacked and this program has; name cells as IPython."""
    if not record.remote_traceback:
        return record
    text = _FRAME_WITHOUT_SOURCE.sub(_with_source_line, record.remote_traceback)
    return msgspec.structs.replace(record, remote_traceback=text)


def _with_source_line(frame: re.Match[str]) -> str:
    file, number = frame["file"], int(frame["line"])
    place = cell_of(file) or f'File "{file}"'
    source = linecache.getline(file, number).strip()
    shown = f"  {place}, line {number}, in {frame['function']}\n"
    return f"{shown}    {source}\n" if source else shown

"""Check of SQLite's write-ahead log before SQLite reads it.

SQLite ignores everything behind the first frame whose checksum differs, since a commit that the
machine's power failure interrupted looks like that. Only the last commit can have been
interrupted, as every commit is synchronous. A damaged frame before it is an error here; SQLite
would lose all later commits without a word. (https://sqlite.org/fileformat2.html#walformat)
"""

import struct
from pathlib import Path

from stoker.service.journal.blocks import damaged

_HEADER_BYTES = 32
_FRAME_HEADER = struct.Struct(">II8sII")  # page, pages after a commit or 0, salts, checksum
_MAGICS = {0x377F0682: "<", 0x377F0683: ">"}


def check_log(path: Path) -> None:
    """Check the log at `path`, which need not exist.

    Raises:
        DataLossError: if SQLite would ignore a commit other than the last.
    """
    data = path.read_bytes() if path.exists() else b""
    if len(data) < _HEADER_BYTES + _FRAME_HEADER.size:
        return
    magic, _, page_bytes = struct.unpack_from(">3I", data)
    order = _MAGICS.get(magic, "<")
    sums = _checksum(data[:24], (0, 0), order)
    if magic not in _MAGICS or sums != struct.unpack_from(">II", data, 24):
        raise damaged(str(path), "the checksum of its header differs")
    salts = data[16:24]
    size = _FRAME_HEADER.size + page_bytes
    frames = iter(range(_HEADER_BYTES, len(data) - size + 1, size))
    for start in frames:
        sums = _checksum(data[start : start + 8], sums, order)
        sums = _checksum(data[start + _FRAME_HEADER.size : start + size], sums, order)
        frame = _FRAME_HEADER.unpack_from(data, start)
        if frame[2:] != (salts, *sums):
            later = [frame, *(_FRAME_HEADER.unpack_from(data, start) for start in frames)]
            # Frames with other salts are older than the last checkpoint.
            commits = [commit for _, commit, found, *_ in later if found == salts]
            if any(commits[:-1]):
                raise damaged(str(path), f"the checksum of its frame at byte {start} differs")
            return


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    for one, two in struct.iter_unpack(f"{order}II", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second

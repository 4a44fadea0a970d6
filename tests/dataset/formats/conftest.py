"""Files are read in blocks; what depends on where one ends shows only if they are small."""

import pytest

from stoker.dataset.formats import csv, opening, text


@pytest.fixture(params=[None, 16, 50], ids=["whole blocks", "blocks of 16", "blocks of 50"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read, decompress and split a few bytes at once."""
    if request.param is not None:
        monkeypatch.setattr(opening, "BLOCK_BYTES", request.param)
        monkeypatch.setattr(opening, "_COMPRESSED_BYTES", request.param // 2)
        monkeypatch.setattr(csv, "_STEP_BYTES", request.param)
        monkeypatch.setattr(text, "_STEP_BYTES", request.param)

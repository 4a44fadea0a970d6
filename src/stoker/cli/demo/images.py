"""Generated JPEG files that cost as much to decode as photographs."""

import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WIDTH, HEIGHT = 500, 375
QUALITY = 90

_OCTAVES = ((4, 3), (12, 9), (40, 30), (125, 94))
"""Grid sizes of the noise, coarse to fine; each octave has 0.6 of the last one's contrast."""


def make_images(directory: Path, count: int, report: Callable[[int], None]) -> list[str]:
    """Create `count` JPEG files in `directory` and return their paths; existing files are kept.

    It uses all cores: NumPy and Pillow release the GIL. A file is complete or absent.

    Args:
        directory: created if missing.
        count: number of files.
        report: called in this thread with the number of existing files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{number:05}.jpg" for number in range(count)]
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    done = count - len(missing)
    report(done)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda number: _write(paths[number], number), missing):
            done += 1
            report(done)
    return [str(path) for path in paths]


def _write(path: Path, number: int) -> None:
    # An interrupted run must not leave a part of a file at the final name.
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(photo_like(number))
    unfinished.replace(path)


def photo_like(seed: int) -> bytes:
    """Return a JPEG of `WIDTH` x `HEIGHT`: clouds of colour and film grain."""
    rng = np.random.default_rng(seed)
    # Grain determines the size of the file, and so the time to decode it: shapes with sharp edges
    # added 1 % to both.
    grain = rng.integers(-14, 15, (HEIGHT, WIDTH, 1), dtype=np.int16)
    pixels = np.clip(_clouds(rng) + grain, 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _clouds(rng: np.random.Generator) -> NDArray[np.int16]:
    total = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    contrast, weights = 1.0, 0.0
    for columns, rows in _OCTAVES:
        grid = Image.fromarray(rng.integers(0, 256, (rows, columns, 3), dtype=np.uint8))
        smooth = grid.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        total += np.asarray(smooth, np.float32) * np.float32(contrast)
        weights += contrast
        contrast *= 0.6
    return (total / np.float32(weights)).astype(np.int16)

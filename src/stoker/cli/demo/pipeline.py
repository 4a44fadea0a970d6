"""The input pipeline of the demo, written as a user of stoker would."""

import random
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import stoker

SIZE = 224
BATCH = 32
SEED = 7
"""Seed of the order, which is then the same in all runs of the demo."""


def training_samples(files: list[str], count: int) -> stoker.Dataset:
    """Return batches of (images, numbers): `count` random crops from `files`, in random order."""
    return (
        stoker.Dataset.range(count)
        .shuffle(count, seed=SEED)
        .map(partial(load, files), num_parallel_calls=stoker.AUTOTUNE)
        .batch(BATCH)
    )


def load(files: list[str], number: int) -> tuple[NDArray[np.uint8], int]:
    """Decode one file, crop a random square, scale it to `SIZE` and flip it with probability 0.5.

    The number of the sample is returned with it, so that the trainer can count repeated and lost
    samples.
    """
    # Drawn by the number of the sample, so that both runs get the same crops.
    chance = random.Random(number)
    with Image.open(files[number % len(files)]) as photo:
        side = chance.randint(SIZE, min(photo.size))
        left, top = (chance.randint(0, length - side) for length in photo.size)
        square = (left, top, left + side, top + side)
        image = photo.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=square)
    if chance.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image), number

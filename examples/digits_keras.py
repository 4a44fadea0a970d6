"""Train a Keras model on augmented digits, with `fit`, from a service.

Shows: `stoker.keras.adapt` for training and validation, with any backend (KERAS_BACKEND).
One machine: KERAS_BACKEND=torch python examples/digits_keras.py
Several: `stoker dispatcher` and `stoker worker` as in docs/deployment.md, then
KERAS_BACKEND=torch python examples/digits_keras.py --service grpc://HOST:5050
"""

import argparse
import contextlib

import keras
import numpy as np

import stoker
import stoker.keras

GLYPHS = ["01110 10001 10001 10001 01110", "00100 01100 00100 00100 01110"]
GLYPHS += ["11110 00001 01110 10000 11111", "11110 00001 00110 00001 11110"]
"""Four digits as rows of dots: the data of this example."""


def draw(i: int) -> tuple[np.ndarray, int]:
    """Draw a digit at a random place of a noisy image of 12 x 12. Runs on the workers."""
    random = stoker.random.generator()
    label = i % len(GLYPHS)
    digit = np.array([[int(dot) for dot in row] for row in GLYPHS[label].split()], np.float32)
    image = random.normal(0, 0.2, (12, 12, 1)).astype(np.float32)
    top, left = random.integers(0, 7, 2)
    image[top : top + 5, left : left + 5, 0] += digit
    return image, label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", help="address of a dispatcher; default: a LocalCluster")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    train = stoker.Dataset.range(2000).shuffle(2000, seed=1).map(draw).batch(50)
    validation = stoker.Dataset.range(2000, 2200).map(draw)

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 5, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(len(GLYPHS), activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    with contextlib.ExitStack() as stack:
        service = arguments.service or stack.enter_context(stoker.LocalCluster(num_workers=2))
        history = model.fit(
            # Batches are made on the workers. Without the known number of steps Keras would warn
            # that the first epoch ran out of data.
            stoker.keras.adapt(train.distribute(service).repeat()),
            steps_per_epoch=40,
            validation_data=stoker.keras.adapt(validation, batch_size=100),
            epochs=arguments.epochs,
            verbose=2,
        )
    assert history.history["val_accuracy"][-1] > 0.8


if __name__ == "__main__":
    main()

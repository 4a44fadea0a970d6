"""`stoker.keras.adapt`: models are fitted with each backend, in a process of its own."""

import importlib.util
import os
import subprocess
import sys

import pytest

# Importing keras here would import the framework of its default backend.
for name in ("keras", "torch", "jax"):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)

TRAINING = """
import warnings
import keras, numpy as np, stoker, stoker.keras

inputs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
targets = inputs @ np.array([[1.0], [2.0], [3.0]], np.float32)
samples = stoker.Dataset.from_tensor_slices((inputs, targets))


def model():
    made = keras.Sequential([keras.layers.Dense(1)])
    made.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return made


class Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.steps = []

    def on_epoch_begin(self, epoch, logs=None):
        self.steps.append(0)

    def on_train_batch_end(self, batch, logs=None):
        self.steps[-1] += 1


def main():
    fitted, counter = model(), Steps()
    train = stoker.keras.adapt(samples, 16, shuffle=True)
    assert len(train) == train.num_batches == 4
    test = stoker.keras.adapt(samples.batch(32))
    history = fitted.fit(train, epochs=15, verbose=0, validation_data=test, callbacks=[counter])
    assert history.history["loss"][-1] < 1e-3, history.history
    assert counter.steps == [4] * 15, counter.steps
    assert fitted.evaluate(test, verbose=0) < 1e-3
    predicted = fitted.predict(stoker.keras.adapt(samples.map(lambda x, y: x).batch(10)), verbose=0)
    assert np.abs(predicted - targets).max() < 0.1

    with stoker.LocalCluster(2) as cluster:
        served, counter = stoker.keras.adapt(samples.distribute(cluster), 16), Steps()
        assert served.num_batches == 4
        model().fit(served, epochs=3, verbose=0, callbacks=[counter])
        assert counter.steps == [4] * 3, counter.steps

    endless, counter = stoker.keras.adapt(samples.repeat().batch(16)), Steps()
    model().fit(endless, epochs=2, steps_per_epoch=5, verbose=0, callbacks=[counter])
    assert counter.steps == [5, 5], counter.steps

    unknown, counter = stoker.keras.adapt(samples.filter(lambda x, y: True).batch(16)), Steps()
    assert unknown.num_batches is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns where the first epoch finds the length
        model().fit(unknown, epochs=2, verbose=0, callbacks=[counter])
    assert counter.steps == [4, 4], counter.steps
    # A list is (x, y).
    listed = samples.batch(16).map(lambda x, y: [x, y])
    assert model().fit(stoker.keras.adapt(listed), verbose=0).history["loss"]

    # The named epoch is read, wherever the model began others.
    order = []
    seen = samples.shuffle(64).map(lambda x, y: (order.append(float(y[0])), (x, y))[1]).batch(64)
    named = stoker.keras.adapt(seen, seed=1)
    orders = []
    for _ in range(2):
        named.set_epoch(5)
        order.clear()
        model().fit(named, steps_per_epoch=1, verbose=0)
        orders.append(order[:64])
    assert orders[0] == orders[1], orders
    print("fitted with", keras.backend.backend())


main()
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_models_are_fitted_evaluated_and_predict(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", TRAINING],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"fitted with {backend}" in done.stdout

"""Keras 3 on its JAX backend, saving whole models.

    python train.py OUT FINAL

OUT/model-NNNN.keras is a checkpoint: one archive of architecture, weights and optimizer, whose count the schedule goes by.
Keras does not keep how far a layer's random numbers have come, so the layer that draws them adds it. The name says an
epoch; the callback says the step, and what is in the file.
"""

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from lakemark.data import paths
from lakemark.trainer import Run
from lakemark.trainer.loop import saving

EPOCHS, BATCH = 7, 32


@keras.saving.register_keras_serializable("example")
class Dropout(keras.layers.Dropout):
    def save_own_variables(self, store):
        store["seed"] = np.asarray(self.seed_generator.state)

    def load_own_variables(self, store):
        self.seed_generator.state.assign(store["seed"])


def build():
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((16,)),
        layers.Dense(1024, "tanh"),
        Dropout(0.1, seed=7),
        layers.Dense(1024),
        layers.Dense(1),
    ])  # fmt: skip
    rate = keras.optimizers.schedules.ExponentialDecay(1e-3, decay_steps=10, decay_rate=0.9)
    model.compile(keras.optimizers.AdamW(rate), "mse")
    return model


class Save(keras.callbacks.Callback):
    def __init__(self, run, out):
        super().__init__()
        self.run, self.out = run, out

    def on_epoch_end(self, epoch, logs=None):
        path = self.out / f"model-{epoch + 1:04d}.keras"
        step = int(self.model.optimizer.iterations)
        with saving(self.run, path, step=step, metrics=logs, present=("weights", "optimizer", "scheduler", "rng")):
            self.model.save(path)


if __name__ == "__main__":
    out, final = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(7)
    run = Run.open("keras")
    rows = np.load(*paths(run, "train/rows.npz"))

    saves = sorted(out.glob("model-*.keras"))
    model = keras.saving.load_model(saves[-1]) if saves else build()
    done = int(saves[-1].stem.removeprefix("model-")) if saves else 0
    model.fit(
        rows["x"], rows["y"],
        batch_size=BATCH, shuffle=False, epochs=EPOCHS, initial_epoch=done,
        callbacks=[Save(run, out)], verbose=0,
    )  # fmt: skip
    np.savez(final, *model.get_weights())

"""JAX with Orbax's CheckpointManager, saving in the background.

    python train.py OUT FINAL

OUT/N/ is a checkpoint: Orbax writes `N.orbax-checkpoint-tmp` and renames it when all of it is there.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from lakemark.data import paths
from lakemark.trainer import Run

STEPS, EVERY, BATCH, KEEP = 28, 4, 32, 0.9


def fresh(key):
    """Weights, Adam's moments and its count, which the schedule goes by, and the key of random numbers."""
    one, two, three, key = jax.random.split(key, 4)
    weights = {
        "w1": jax.random.normal(one, (16, 1024)) / 4,
        "w2": jax.random.normal(two, (1024, 1024)) / 32,
        "w3": jax.random.normal(three, (1024, 1)) / 32,
    }
    nothing = jax.tree.map(jnp.zeros_like, weights)
    return {
        "params": weights,
        "opt_state": {"count": jnp.zeros((), jnp.int32), "mu": nothing, "nu": nothing},
        "rng": key,
    }


def loss_of(weights, x, y, key):
    hidden = jnp.tanh(x @ weights["w1"])
    hidden = hidden * jax.random.bernoulli(key, KEEP, hidden.shape) / KEEP
    return jnp.mean(((hidden @ weights["w2"] @ weights["w3"])[:, 0] - y) ** 2)


@jax.jit
def train_step(state, x, y):
    rows, drop, key = jax.random.split(state["rng"], 3)
    chosen = jax.random.choice(rows, len(x), (BATCH,), replace=False)
    slopes = jax.grad(loss_of)(state["params"], x[chosen], y[chosen], drop)
    adam = state["opt_state"]
    count = adam["count"] + 1
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, adam["mu"], slopes)
    nu = jax.tree.map(lambda n, g: 0.999 * n + 0.001 * g * g, adam["nu"], slopes)
    rate = 1e-3 / (1 + count / 20)
    weights = jax.tree.map(
        lambda w, m, n: w - rate * (m / (1 - 0.9**count)) / (jnp.sqrt(n / (1 - 0.999**count)) + 1e-8),
        state["params"], mu, nu,
    )  # fmt: skip
    return {"params": weights, "opt_state": {"count": count, "mu": mu, "nu": nu}, "rng": key}


if __name__ == "__main__":
    out, final = map(Path, sys.argv[1:])
    run = Run.open("orbax")
    rows = np.load(*paths(run, "train/rows.npz"))
    x, y = jnp.asarray(rows["x"]), jnp.asarray(rows["y"])

    state = fresh(jax.random.PRNGKey(7))
    options = ocp.CheckpointManagerOptions(save_interval_steps=EVERY)
    with ocp.CheckpointManager(out.absolute(), options=options) as manager:
        step = manager.latest_step() or 0
        if step:
            state = manager.restore(step, args=ocp.args.StandardRestore(state))
        while step < STEPS:
            state = train_step(state, x, y)
            step += 1
            manager.save(step, args=ocp.args.StandardSave(state))
    np.savez(final, **{name: np.asarray(value) for name, value in state["params"].items()})

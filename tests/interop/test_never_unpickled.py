"""Files that would create a directory if anybody loaded them pass through every command, and nothing is created."""

import base64
import io
import json
import marshal
import os
import pickle
import sys
import types
import zipfile

import pytest

from tests.cli.conftest import cli, empty  # noqa: F401 - fixtures
from tests.formats.builders import Chunk, dcp_metadata, safetensors, save, torch_zip_of
from tests.formats.jax_builders import hdf5, msgpack, t5x

UNPICKLED: list[str] = []
LISTENING: list[bool] = []


def _heard(event, arguments):
    if event == "pickle.find_class" and LISTENING:
        UNPICKLED.append(".".join(map(str, arguments)))


sys.addaudithook(_heard)


@pytest.fixture
def listening():
    """Whatever is unpickled in this process is heard."""
    UNPICKLED.clear()
    LISTENING.append(True)
    yield UNPICKLED
    LISTENING.clear()


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (os.mkdir, (self.target,))


def bomb_then(pickled, target):
    """The same pickle, but whoever loads it runs a bomb first. `pickled` is of protocol 2 or later."""
    call = b"cos\nmkdir\n(V" + target.encode() + b"\ntR0"
    return pickled[:2] + call + pickled[2:]


def keras_with_lambda(target):
    code = compile(f"mkdir({target!r})", "<lambda>", "eval")
    layer = {
        "class_name": "Lambda",
        "config": {
            "function": {"class_name": "__lambda__", "config": {"code": base64.b64encode(marshal.dumps(code)).decode()}}
        },
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1", "date_saved": "2026-11-29"}))
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": [layer]}}))
        archive.writestr("model.weights.h5", hdf5())
    return buffer.getvalue()


def checkpoints(out, target):
    """name -> step of directories and files below `out`; each has a bomb in every file that anybody would unpickle."""
    bomb = pickle.dumps(Bomb(target), protocol=2)
    zipped = torch_zip_of(bomb)

    save(out / "torch" / "model-1.pt", zipped)
    save(out / "legacy" / "model-2.pt", bomb)
    chunks = [
        Chunk(name, "__0_0.distcp", at * len(bomb), len(bomb)) for at, name in enumerate(("model.w", "optimizer.w"))
    ]
    save(out / "dcp" / "step-3" / "__0_0.distcp", bomb * 2)
    save(out / "dcp" / "step-3" / ".metadata", bomb_then(dcp_metadata(chunks), target))
    hf = out / "hf" / "checkpoint-4"
    save(hf / "config.json", "{}")
    save(hf / "model.safetensors", safetensors())
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        save(hf / name, zipped if name != "rng_state.pth" else bomb)
    save(hf / "trainer_state.json", json.dumps({"global_step": 4}))
    save(out / "lightning" / "epoch=0-step=5.ckpt", zipped)
    t5x(out / "t5x" / "checkpoint_6")
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": "target.encoder.kernel/"}}
    state = {"target": {"kernel": spec}, "state": {"step": 5, "function": bomb}}
    save(out / "t5x" / "checkpoint_6" / "checkpoint", msgpack({"version": 3, "optimizer": state}))
    save(out / "flax" / "checkpoint_7", msgpack({"target": {"w": {"function": bomb}}, "optimizer": {"state": bomb}}))
    save(out / "keras" / "model-8.keras", keras_with_lambda(target))
    accelerate = out / "accelerate" / "step_9"
    save(accelerate / "model.safetensors", safetensors())
    for name in ("optimizer.bin", "scheduler.bin", "random_states_0.pkl", "custom_checkpoint_0.pkl"):
        save(accelerate / name, bomb if name.endswith("pkl") else zipped)
    save(out / "megatron" / "iter_0000010" / "mp_rank_00" / "model_optim_rng.pt", zipped)
    save(out / "deepspeed" / "global_step11" / "mp_rank_00_model_states.pt", zipped)
    save(out / "deepspeed" / "global_step11" / "zero_pp_rank_0_mp_rank_00_optim_states.pt", zipped)
    save(out / "deepspeed" / "latest", "global_step11")


def test_the_bombs_are_live(tmp_path, listening):
    """Else the test below says nothing."""
    target = tmp_path / "exploded"
    bomb = pickle.dumps(Bomb(str(target)), protocol=2)
    for content in (bomb, bomb_then(pickle.dumps({"a": 1}, protocol=2), str(target))):
        pickle.loads(content)
        target.rmdir()
    assert listening
    with zipfile.ZipFile(io.BytesIO(keras_with_lambda(str(target)))) as archive:
        (layer,) = json.loads(archive.read("config.json"))["config"]["layers"]
    code = marshal.loads(base64.b64decode(layer["config"]["function"]["config"]["code"]))
    types.FunctionType(code, {"mkdir": os.mkdir})()
    assert target.exists()


def test_nothing_is_ever_loaded(cli, listening):  # noqa: F811 - the fixture
    target = cli.home / "exploded"
    out = cli.home / "out"
    cli.ok("run", "open", "r1", "--watch", out)
    checkpoints(out, str(target))
    found = cli.ok("inspect", out)["found"]
    assert {one["framework"] for one in found} >= {
        "dcp", "hf-trainer", "lightning", "t5x", "flax-legacy", "keras", "accelerate", "megatron-legacy", "deepspeed",
    }  # fmt: skip
    for path in out.rglob("*"):
        cli("inspect", path, "--json")
    swept = cli.ok("sweep")
    assert len(swept["committed"]) >= 8, (swept["incomplete"], swept["pending"])
    for number, one in enumerate(found):
        cli("commit", one["path"], "--run", "r1", "--step", 100 + number)
    cli.ok("verify")
    records = cli.ok("ls", "r1")["records"]
    assert len(records) >= 10
    for row in records:
        cli.ok("show", row["record"])
        to = cli.home / "restored" / row["record"][:12]
        cli.ok("restore", row["record"], "--to", to)
        for role in row["roles"]:
            cli("restore", row["record"], "--role", role, "--to", f"{to}-{role}")
        cli.ok("inspect", to)
    cli("resume", "r1", "--to", out, "--job", "1")
    for number, row in enumerate(records):
        cli("resume", "r1", "--to", cli.home / f"resumed-{number}", "--record", row["record"], "--job", f"j{number}")
    cli.ok("sweep")
    assert not target.exists()
    assert listening == []

"""What the adapters are without their frameworks: lazily imported, clear about what is missing, silent in the loop."""

import json
import pickle
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakemark.adapters.node.run_files import LocalSpool
from lakemark.ports import RunFile
from lakemark.trainer import Ranks, Run
from lakemark.trainer.accelerate import save_state
from lakemark.trainer.loop import saving

NEEDS = {"hf": ["transformers"], "dcp": ["torch"], "lightning": ["lightning", "pytorch_lightning"]}


@pytest.fixture
def run(tmp_path):
    run_file = RunFile(run="r", timeline=1, attempt="t1", spool=tmp_path / "home/spool/r", data=())
    LocalSpool().write_run_file(tmp_path / "home/runs/r.json", run_file)
    return Run.open("r", environ={"LAKEMARK_HOME": str(tmp_path / "home")})


def spooled(run):
    return list(LocalSpool().spooled(Path(run._spool)))


@pytest.mark.parametrize("adapter", NEEDS)
def test_what_is_missing_is_named(adapter):
    code = f"""
import sys
for name in {NEEDS[adapter]!r}: sys.modules[name] = None
try:
    import lakemark.trainer.{adapter}
except ImportError as error:
    print(error.name, "|", error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first = NEEDS[adapter][0]
    assert done.stdout.strip() == f"{first} | lakemark.trainer.{adapter} needs {first}, which can't be imported"


def test_what_a_framework_lacks_itself_is_not_taken_for_it(tmp_path):
    (tmp_path / "lightning/fabric").mkdir(parents=True)
    (tmp_path / "lightning/__init__.py").write_text("")
    (tmp_path / "lightning/fabric/__init__.py").write_text("")
    (tmp_path / "lightning/fabric/plugins.py").write_text("import no_such_module_of_theirs")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import lakemark.trainer.lightning"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "No module named 'no_such_module_of_theirs'" in done.stderr


def test_only_the_standard_library():
    code = """
import sys
import lakemark.trainer, lakemark.trainer.loop, lakemark.trainer.accelerate, lakemark.trainer.listing
print([n for n in sys.modules if n.split(".")[0] in ("torch", "numpy", "transformers", "accelerate", "lightning")])
print([n for n in sys.modules if n.startswith("lakemark.") and not n.startswith("lakemark.trainer")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]


def test_a_block_that_ended(run, tmp_path):
    metrics = {}
    with saving(run, tmp_path / "step-3", step=3, metrics=metrics, roles={"a": "weights"}, present=["rng", "weights"]):
        assert spooled(run) == []
        metrics["loss"] = 2
    (one,) = spooled(run)
    assert (one.step, one.path, one.metrics) == (3, tmp_path / "step-3", {"loss": 2.0})
    assert (one.roles, one.present, one.world) == ({"a": "weights"}, ("rng", "weights"), None)


def test_how_long_a_block_took_is_told(run, tmp_path):
    with saving(run, tmp_path / "step-3", step=3):
        time.sleep(0.05)
    (one,) = spooled(run)
    assert 0.05 <= one.saved_seconds < 30


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_a_block_that_raised(run, error):
    with pytest.raises(error), saving(run, "/x", step=3):
        raise error
    assert spooled(run) == []


def test_ranks_that_may_still_be_writing(run):
    with saving(run, "/x", step=3, ranks=Ranks(world=3, files=("rng_{rank}.pth", "a/{rank}/w"))):
        pass
    (one,) = spooled(run)
    assert (one.world, one.rank_files) == (3, ("rng_{rank}.pth", "a/{rank}/w"))
    assert list(one.awaited({"rng_0.pth", "rng_2.pth", "a/0/w", "a/1/w"})) == ["rng_1.pth", "a/2/w"]
    assert list(one.awaited({f"rng_{n}.pth" for n in range(3)} | {f"a/{n}/w" for n in range(3)})) == []


def test_an_announcement_that_speaks_for_all_ranks_awaits_nothing(run):
    run.saved("/x", step=3)
    assert list(spooled(run)[0].awaited(())) == []


def test_what_is_not_said_is_not_written(run):
    run.saved("/x", step=3)
    (one,) = spooled(run)
    assert not {"present", "ranks"} & set(json.loads(one.file.read_text()))
    assert (one.present, one.world, one.rank_files) == ((), None, ())


BAD = [{"world": 0, "files": []}, {"world": 10**12, "files": ["a{rank}"]}, {"world": True, "files": []}, [],
       {"world": 2, "files": [1]}, {"world": 2, "files": ["a{rank}"] * 5}]  # fmt: skip


@pytest.mark.parametrize("ranks", BAD, ids=str)
def test_ranks_that_cannot_be_are_rejected(run, ranks):
    run.saved("/x", step=3)
    (one,) = spooled(run)
    one.file.write_text(json.dumps(json.loads(one.file.read_text()) | {"ranks": ranks}))
    assert spooled(run) == []
    assert (one.file.parent / "rejected" / one.file.name).exists()


@pytest.mark.parametrize("given", [{"ranks": 3}, {"present": 3}, {"ranks": Ranks(world="x", files=())}], ids=str)
def test_a_wrong_argument_is_said_and_over(run, capsys, given):
    run.saved("/x", step=3, **given)
    assert spooled(run) == []
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("path", ["s3://bucket/step-3", "gs://b/x", "memory://x", "hdfs://h/x"])
def test_object_stores_are_not_announced(run, capsys, path):
    run.saved(path, step=3)
    assert spooled(run) == []
    assert "object store" in capsys.readouterr().err


def test_an_empty_path_is_not_the_directory_one_is_in(run, capsys):
    run.saved("", step=3)
    assert spooled(run) == []
    assert "its path is empty" in capsys.readouterr().err


def test_names_with_colons_are_files(run, tmp_path):
    run.saved(tmp_path / "s3:", step=1)
    run.saved("c:/x", step=2)
    assert [one.path.name for one in spooled(run)] == ["s3:", "x"]


def test_a_run_travels_to_another_process(run):
    pickle.loads(pickle.dumps(run)).saved("/x", step=3)
    assert [one.step for one in spooled(run)] == [3]


def test_a_full_disk(run, capsys):
    """No file may grow: as on a full disk, the file can be made and nothing written to it."""
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, kept[1]))
    try:
        for step in (1, 2):
            with saving(run, "/x", step=step):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert list(Path(run._spool).iterdir()) == []
    assert capsys.readouterr().err.count("lakemark: ") == 1
    run.saved("/x", step=3)
    assert [one.step for one in spooled(run)] == [3]


class Saves:
    """As much of an Accelerator as `save_state` asks of it; it saves by making files."""

    def __init__(self, *, rank=0, world=1, local_rank=None, each=False):
        self.num_processes, self.is_main_process = world, rank == 0
        self.is_local_main_process = (rank if local_rank is None else local_rank) == 0
        self.project_configuration = SimpleNamespace(save_on_each_node=each)
        self.rank = rank

    def save_state(self, output_dir, **options):
        self.options = options
        folder = Path(output_dir)
        folder.mkdir(exist_ok=True)
        for name in ("model.safetensors", "optimizer_1.bin", f"random_states_{self.rank}.pkl", "notes.txt"):
            (folder / name).write_bytes(b"x")
        return folder


def test_accelerate(run, tmp_path):
    accelerator = Saves(world=64)
    assert save_state(accelerator, run, tmp_path / "a", step=3, safe_serialization=False) == tmp_path / "a"
    assert accelerator.options == {"safe_serialization": False}
    (one,) = spooled(run)
    assert one.roles == {"model.safetensors": "weights", "optimizer_1.bin": "optimizer", "random_states_0.pkl": "rng"}
    assert len(list(one.awaited(one.roles))) == 63


@pytest.mark.parametrize(
    ("each", "rank", "local_rank", "speaks"),
    [(False, 0, 0, True), (False, 1, 1, False), (False, 8, 0, False), (True, 8, 0, True), (True, 9, 1, False)],
)
def test_accelerate_speaks_once_per_place(run, tmp_path, each, rank, local_rank, speaks):
    save_state(Saves(rank=rank, local_rank=local_rank, world=16, each=each), run, tmp_path / "a", step=3)
    assert len(spooled(run)) == speaks


def test_accelerate_of_another_shape_is_said_and_over(run, tmp_path, capsys):
    accelerator = Saves()
    del accelerator.project_configuration
    assert save_state(accelerator, run, tmp_path / "a", step=3) == tmp_path / "a"
    assert spooled(run) == []
    assert "project_configuration" in capsys.readouterr().err

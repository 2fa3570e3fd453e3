"""Resume gives each framework its own layout and pointer back, with real checkpoints on a real disk."""

import json
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from lakemark.errors import NotFound, Refused, Usage
from lakemark.ports import Verdict
from lakemark.services.back.refresh_run_file import freshen
from lakemark.services.back.restore import restore
from lakemark.services.node.sweep import sweep
from lakemark.services.saves.commit import Commit, commit
from tests.faults.site_on_disk import killed_at
from tests.services.framework_bench import NESTED, RUN, Bench, contents, tree, unpack


@dataclass(frozen=True)
class Case:
    """step is resumed from; `kept` are its names, `later` those of later steps. named: what the pointer then says."""

    folder: str
    step: int
    kept: tuple[str, ...]
    later: tuple[str, ...]
    pointer: str | None = None
    named: str | None = None
    inside: str = ""


LIT8, LIT16 = "epoch=0-step=8-val_loss=1.41.ckpt", "epoch=1-step=16-val_loss=1.41.ckpt"
NEMO = "model_name=0--val_loss={}-step={}-consumed_samples={}.0"
NEMO5, NEMO10, NEMO15 = (
    NEMO.format("2.35", 500, 4000),
    NEMO.format("2.10", 1000, 8000),
    NEMO.format("1.98", 1500, 12000),
)
TF50, TF100 = (tuple(f"ckpt-{step}.{end}" for end in ("data-00000-of-00001", "index")) for step in (50, 100))
CASES = (
    Case("deepspeed/zero1", 5, ("global_step5",), ("global_step10",), "latest", "global_step5"),
    Case("deepspeed/zero1_custom_tag", 5, ("step=5",), ("step=10",), "latest", "step=5"),
    Case("megatron/torch_dist", 500, ("iter_0000500",), ("iter_0001000",), "latest_checkpointed_iteration.txt", "500"),
    Case("megatron/legacy_torch", 500, ("iter_0000500",), ("iter_0001000",), "latest_checkpointed_iteration.txt", "500"),
    Case("keras_tf/tfckpt", 50, TF50, TF100, "checkpoint"),
    Case("lightning/topk_last", 8, (LIT8,), (LIT16,), "last.ckpt"),
    Case("lightning/last_link", 8, (LIT8,), (LIT16,), "last.ckpt", f"-> {LIT8}"),
    Case("composer/unsharded", 100, ("ep0-ba100-rank0.pt",), ("ep0-ba200-rank0.pt",), "latest-rank0.pt", "-> ep0-ba100-rank0.pt"),
    Case("composer/fsdp_sharded", 100, ("ep0-ba100",), ("ep0-ba200",), "latest-rank0.pt", "-> ep0-ba100"),
    Case("fairseq/plain", 500, ("checkpoint_2_500.pt",), ("checkpoint_2_1000.pt",), "checkpoint_last.pt"),
    Case("hf_trainer/plain", 5, ("checkpoint-5",), ("checkpoint-10",)),
    Case("dcp/two_ranks", 100, ("step-100",), ("step-200",)),
    Case("orbax/default", 100, ("100",), ("200",)),
    Case("torchtitan/keep2", 30, ("step-30",), ("step-40", "step-45"), inside="checkpoint"),
    Case("olmo_core/run", 4, ("step4",), ("step8",)),
    Case("flax/legacy_msgpack", 900, ("checkpoint_900",), ("checkpoint_1000",)),
)  # fmt: skip
KILLED = tuple(case for case in CASES if case.folder in ("deepspeed/zero1", "lightning/topk_last", "keras_tf/tfckpt"))


@pytest.fixture
def folder(tmp_path):
    """In memory where that is possible: what is durable is the power cut's business, not this test's."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


@cache
def original(case):
    """Name -> tree of everything in the case's folder, as the archive has it."""
    with tempfile.TemporaryDirectory() as made:
        place = unpack(Path(made) / "x", case.folder) / case.inside
        return {path.name: path.readlink() if path.is_symlink() else tree(path) for path in place.iterdir()}


def says(path):
    return f"-> {path.readlink()}" if path.is_symlink() else path.read_text()


def check(bench, case, done):
    """The step is whole in its own place, the pointer is at it, and nothing later is to be found."""
    place = bench.place / case.inside
    for name in case.kept:
        assert tree(place / name) == original(case)[name]
    assert not [name for name in case.later if (place / name).exists()]
    for name in case.later:
        assert tree(bench.aside() / NESTED / case.inside / name) == original(case)[name]
    if case.named is not None:
        assert says(place / case.pointer) == case.named
    elif case.pointer is not None and case.pointer != "checkpoint":
        assert (place / case.pointer).read_bytes() == (place / case.kept[0]).read_bytes()
        assert not (place / case.pointer).samefile(place / case.kept[0])
    assert bench.before - contents(bench.out) == {}
    steps = {one.step for one in bench.found() if one.verdict is Verdict.COMPLETE and one.step is not None}
    assert max(steps) == case.step
    assert done.found.record.step == case.step


@pytest.mark.parametrize(
    ("case", "lost"),
    [*((case, True) for case in CASES), *((case, False) for case in CASES[4:8])],
    ids=lambda value: getattr(value, "folder", "lost" if value is True else "there"),
)
def test_the_framework_s_own_layout_and_pointer_come_back(folder, case, lost):
    bench = Bench(folder / "site", case.folder)
    if lost:
        bench.lose(*(Path(case.inside, name) for name in case.kept))
        bench.before = contents(bench.out)
    done = bench.resume(case.step)
    check(bench, case, done)
    records = set(bench.site().ledger.run(RUN).records)
    again = bench.resume(case.step)
    assert (again.changed, again.moved_aside, again.pointers) == (False, (), ())
    sweep(bench.site())
    assert set(bench.site().ledger.run(RUN).records) == records, "what was restored or moved was committed again"


@pytest.mark.parametrize("case", KILLED, ids=lambda case: case.folder)
def test_killed_anywhere_the_pointer_names_what_is_whole_and_the_same_job_finishes(folder, case):
    number = 0
    while True:
        number += 1
        bench = Bench(folder / str(number), case.folder)
        bench.lose(*case.kept)
        bench.before = contents(bench.out)
        work = lambda steps, bench=bench: bench.resume(case.step, site=bench.site(steps))  # noqa: E731
        dead, passed = killed_at(work, number)
        assert bench.before - contents(bench.out) == {}
        assert whole(bench, case), f"after a death at step {number}"
        records = set(bench.site().ledger.run(RUN).records)
        done = bench.resume(case.step)
        check(bench, case, done)
        sweep(bench.site())
        assert set(bench.site().ledger.run(RUN).records) == records
        if not dead:
            break
    expected = {"staged", "restored", "drafted", "pointed", "chosen", "moved", "bound", "told"}
    assert expected <= {name.removeprefix("resume.") for name in passed}


def whole(bench, case):
    """Whether the pointer names a step every byte of which is there."""
    place, there = bench.place, original(case)
    if case.pointer == "last.ckpt":
        return (place / "last.ckpt").read_bytes() in (there[LIT8], there[LIT16])
    text = (place / case.pointer).read_text()
    named = text.partition('"')[2].partition('"')[0] if case.pointer == "checkpoint" else text
    names = [name for name in there if name == named or name.startswith(f"{named}.")]
    return bool(names) and all(tree(place / name) == there[name] for name in names)


def test_tensorflow_s_state_names_only_what_is_there(folder):
    bench = Bench(folder / "site", "keras_tf/tfckpt")
    bench.resume(50)
    lines = (bench.place / "checkpoint").read_text().splitlines()
    assert lines[:2] == ['model_checkpoint_path: "ckpt-50"', 'all_model_checkpoint_paths: "ckpt-50"']
    assert not [line for line in lines if "ckpt-100" in line]
    old = bench.aside() / NESTED / "checkpoint"
    assert 'model_checkpoint_path: "ckpt-100"' in old.read_text()


def test_what_a_pointer_said_is_kept(folder):
    bench = Bench(folder / "site", "lightning/topk_last")
    last = (bench.place / "last.ckpt").read_bytes()
    bench.resume(8)
    assert (bench.aside() / NESTED / "last.ckpt").read_bytes() == last


def test_into_a_new_directory_elsewhere_the_path_and_the_pointer_are_the_same(folder):
    bench = Bench(folder / "site", "deepspeed/zero1")
    to = folder / "other" / "node"
    done = bench.resume(5, to=to)
    assert done.path == to / NESTED / "global_step5"
    assert tree(done.path) == tree(bench.place / "global_step5")
    assert (to / NESTED / "latest").read_text() == "global_step5"
    assert [str(one.relative_to(to)) for one in sorted(to.rglob(".*"))] == [], "a folder of ours was left"


def test_the_directory_itself_may_be_the_one_that_holds_the_checkpoints(folder):
    bench = Bench(folder / "site", "deepspeed/zero1")
    bench.lose("global_step5")
    done = bench.resume(5, to=bench.place)
    assert done.path == bench.place / "global_step5"
    assert (bench.place / "latest").read_text() == "global_step5"


def test_temporary_and_half_written_later_ones_and_links_to_them_go_aside(folder):
    bench = Bench(folder / "site", "torchtitan/keep2")
    place = bench.place / "checkpoint"
    for name in ("step-60", "tmp_step-50", "tmp_step-10"):
        (place / name).mkdir()
        (place / name / "__0_0.distcp").write_bytes(name.encode())
    (place / "latest").symlink_to("step-45")
    (place / "best").symlink_to("step-40")
    (place / "oldest").symlink_to("step-30")
    (place / "events.log").write_text("log")
    bench.before = contents(bench.out)
    bench.resume(30)
    left = {path.name for path in place.iterdir()}
    assert {"step-30", "oldest", "events.log"} <= left
    assert left & {"step-40", "step-45", "step-60", "tmp_step-50", "best"} == set()
    assert (place / "latest").readlink() == Path("step-30")
    assert bench.before - contents(bench.out) == {}
    assert (bench.aside() / NESTED / "checkpoint" / "latest").is_symlink()


def test_a_checkpoint_overwritten_in_its_place_is_kept_aside_and_the_right_one_comes_back(folder):
    case = CASES[0]
    bench = Bench(folder / "site", case.folder)
    victim = bench.place / "global_step5" / "mp_rank_00_model_states.pt"
    victim.write_bytes(victim.read_bytes()[:1000])
    bench.before = contents(bench.out)
    done = bench.resume(5)
    check(bench, case, done)
    assert (bench.aside() / NESTED / "global_step5" / victim.name).stat().st_size == 1000


def test_nemo_s_last_and_markers(folder):
    bench = Bench(folder / "site", "nemo/interrupted/unfinished_marker")
    place = bench.place / "checkpoints"
    (place / f"{NEMO5}-unfinished").touch()
    bench.before = contents(bench.out)
    bench.resume(500)
    assert says(place / f"{NEMO5}-last") == f"-> {NEMO5}"
    names = {path.name for path in place.iterdir()}
    assert names == {NEMO5, f"{NEMO5}-last"}
    aside = {path.name for path in (bench.aside() / NESTED / "checkpoints").iterdir()}
    assert aside == {NEMO10, f"{NEMO10}-last", NEMO15, f"{NEMO15}-unfinished", f"{NEMO5}-unfinished"}
    assert bench.before - contents(bench.out) == {}


def test_what_the_trainer_counts_by_itself_is_compared_by_its_own_count(folder):
    """Accelerate's folders count saves: the announced step of one says nothing of the number of another."""
    bench = Bench(folder / "site", "accelerate/auto_naming")
    place = bench.place / "checkpoints"
    for number, step in ((0, 500), (1, 1000)):
        commit(bench.site(), Commit(path=place / f"checkpoint_{number}", run=RUN, step=step))
    (place / "checkpoint_2").mkdir()
    (place / "checkpoint_2" / ".tmpqECRZw").write_bytes(b"half of it")
    done = bench.resume(500)
    assert done.path == place / "checkpoint_0"
    assert {path.name for path in place.iterdir()} == {"checkpoint_0"}


def test_places_written_into_files_are_named_where_they_are_wrong(folder):
    bench = Bench(folder / "site", "hf_trainer/sharded_best_limit")
    done = bench.resume(10)
    (one,) = done.baked
    assert one.file == bench.place / "checkpoint-10" / "trainer_state.json"
    assert one.path.endswith("/sharded_best_limit/checkpoint-10")
    assert one.now == bench.place / "checkpoint-10"
    assert json.loads(one.file.read_text())["best_model_checkpoint"] == one.path, "the file itself is the trainer's"
    orbax = Bench(folder / "orbax", "orbax/default").resume(100)
    assert [one.file.name for one in orbax.baked] == ["commit_success.txt"]


def test_a_root_with_links_comes_back_with_links_and_one_that_leads_out_is_refused(folder):
    bench = Bench(folder / "site", "lightning/last_link")
    root = bench.place.rename(bench.home / "root-700")
    made = commit(bench.site(), Commit(path=root, run=RUN, step=700))
    to = bench.home / "back"
    restore(bench.site(), RUN, made.record.id, to=to)
    assert tree(to) == tree(root)
    assert (to / "last.ckpt").readlink() == Path(LIT16)
    payloads = [path for path in to.iterdir() if not path.is_symlink()]
    assert sum(path.stat().st_size for path in payloads) == made.record.size_bytes
    (root / "out.ckpt").symlink_to("../elsewhere.ckpt")
    with pytest.raises(Refused, match="leads outside"):
        commit(bench.site(), Commit(path=root, run=RUN, step=701))


def test_gaps_are_named_accepted_by_role_and_never_passed_over_in_silence(folder):
    bench = Bench(folder / "site", "hf_trainer/only_model")
    with pytest.raises(NotFound, match="no record that training can go on from: the newest, step 10") as raised:
        bench.resume(without=())
    assert "lakemark restore id:" in raised.value.advice
    with pytest.raises(Refused, match="weights only: starting from it is not a resume"):
        bench.resume(5, without=())
    with pytest.raises(Refused):
        bench.resume(5, without=("rng",))
    with pytest.raises(Usage, match="wheel"):
        bench.resume(5, without=("wheel",))
    done = bench.resume(5)
    assert done.roles.missing == ("optimizer", "scheduler", "rng")
    assert done.accepted == ("no optimizer", "no scheduler", "no rng")
    entries = [entry for entry, _ in bench.site().ledger.entries(RUN) if entry.kind == "resumed"]
    assert entries[-1].body["accepted_gaps"] == ["no optimizer", "no scheduler", "no rng"]


def test_what_a_run_was_resumed_without_its_run_file_goes_on_without(folder):
    bench = Bench(folder / "site", "torchtitan/keep2")
    done = bench.resume(without=("rng",))
    assert done.found.record.gaps == ("no rng",)
    told = json.loads(done.run_file.read_text())["resume"]
    freshen(bench.site(), RUN)
    assert json.loads(done.run_file.read_text())["resume"] == told


def test_newer_ones_with_gaps_are_passed_over_and_named(folder):
    bench = Bench(folder / "site", "hf_trainer/plain")
    last = unpack(bench.home / "more", "hf_trainer/only_model") / "checkpoint-10"
    last.rename(bench.place / "checkpoint-20")
    state = bench.place / "checkpoint-20" / "trainer_state.json"
    state.write_text(state.read_text().replace('"global_step": 10', '"global_step": 20'))
    sweep(bench.site())
    bench.before = contents(bench.out)
    done = bench.resume(without=())
    assert done.found.record.step == 10
    assert [one.found.record.step for one in done.passed_over] == [20]
    assert not (bench.place / "checkpoint-20").exists()
    assert bench.before - contents(bench.out) == {}

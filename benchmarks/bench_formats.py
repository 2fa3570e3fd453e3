"""How fast checkpoints are recognised: steps of a run, a tree without any, and DCP's index of a million chunks.

What it is compared with is measured in the same run: `os.walk` with `lstat` over the same tree, `pickletools.genops` over a
part of the same index. Each peak of memory is that of a process of its own.
"""

import argparse
import json
import os
import pickletools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lakemark.formats import recogniser

RANKS = 1000
CHUNK_BYTES = 131_972
GENOPS_BYTES = 8_000_000
MEASURED = """
import json, resource, sys, time
from lakemark.formats.readers import dcp_metadata
started = time.process_time()
with open(sys.argv[1], "rb") as stream:
    found = dcp_metadata.parse(stream)
    read = time.process_time()
    found.needed_bytes, found.present, dcp_metadata.ranges(found, {"weights"})
asked = time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([len(found), len(found.paths), read - started, asked - read, peak]))
"""


class Pickled:
    """Writes what CPython's pickler writes for the metadata of torch 2.13, without a million objects."""

    def __init__(self) -> None:
        self.memoized = 0
        self.known: dict[str, int] = {}

    def text(self, text: str) -> bytes:
        """A new string, or one seen before."""
        if text in self.known:
            return self.get(self.known[text])
        self.known[text] = self.memoized
        return self.new(text)

    def new(self, text: str) -> bytes:
        self.memoized += 1
        return b"\x8c" + bytes([len(text)]) + text.encode() + b"\x94"

    def get(self, index: int) -> bytes:
        return b"h" + bytes([index]) if index < 256 else b"j" + index.to_bytes(4, "little")

    def known_class(self, module: str, name: str) -> bytes:
        key = f"{module} {name}"
        if key in self.known:
            return self.get(self.known[key])
        made = self.text(module) + self.text(name) + b"\x93\x94"
        self.known[key] = self.memoized
        self.memoized += 1
        return made

    def opened(self, module: str, name: str) -> bytes:
        """A new object of a class, up to its fields."""
        made = self.known_class(module, name)
        self.memoized += 2
        return made + b")\x81\x94}\x94("

    def size(self, first: int, second: int) -> bytes:
        made = self.known_class("torch", "Size") + self.integer(first) + self.integer(second)
        self.memoized += 3
        return made + b"\x86\x94\x85\x94R\x94"

    def integer(self, value: int) -> bytes:
        if value < 1 << 8:
            return b"K" + bytes([value])
        if value < 1 << 16:
            return b"M" + value.to_bytes(2, "little")
        if value < 1 << 31:
            return b"J" + value.to_bytes(4, "little")
        return b"\x8a\x06" + value.to_bytes(6, "little")


def index(tensors: int) -> Iterator[bytes]:
    """`.metadata` of `tensors` tensors in `RANKS` chunks each: in order of tensors first, then in order of ranks."""
    metadata, storage = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
    write = Pickled()
    names = [f"{'optimizer.state.' if one % 3 else 'model.'}layers.{one}.attention.wq.weight" for one in range(tensors)]
    yield b"\x80\x04" + write.opened(metadata, "Metadata") + write.text("state_dict_metadata")
    write.memoized += 1
    yield b"}\x94("
    for name in names:
        write.memoized += 1
        yield write.text(name) + write.opened(metadata, "TensorStorageMetadata") + write.text("chunks") + b"]\x94("
        for rank in range(RANKS):
            yield write.opened(metadata, "ChunkStorageMetadata") + write.text("offsets") + write.size(8 * rank, 0)
            yield write.text("sizes") + write.size(8, 4096) + b"ub"
        yield b"eub"
    yield b"u" + write.text("storage_data")
    write.memoized += 1
    yield b"}\x94("
    for rank in range(RANKS):
        for number, name in enumerate(names):
            yield write.opened(metadata, "MetadataIndex") + write.text("fqn") + write.new(name)
            yield write.text("index") + write.integer(rank) + write.text("offset") + write.size(8 * rank, 0) + b"ub"
            yield write.opened(storage, "_StorageInfo") + write.text("relative_path")
            yield write.text(f"__{rank}_0.distcp") + write.text("offset") + write.integer(number * CHUNK_BYTES)
            yield write.text("length") + write.integer(CHUNK_BYTES) + b"ub"
    yield b"uub."


def bench_index(folder: Path, chunks: int) -> None:
    file = folder / ".metadata"
    with file.open("wb") as stream:
        stream.writelines(index(chunks // RANKS))
    size_mb = file.stat().st_size / 1e6
    done = subprocess.run([sys.executable, "-c", MEASURED, str(file)], check=True, capture_output=True, text=True)
    entries, files, read_seconds, asked_seconds, peak_mib = json.loads(done.stdout)
    assert (entries, files) == (chunks // RANKS * RANKS, RANKS)
    with file.open("rb") as stream:
        part = stream.read(GENOPS_BYTES)
    started = time.process_time()
    operations = 0
    try:
        for _ in pickletools.genops(part):
            operations += 1
    except ValueError:
        pass  # the part ends in the middle
    compared_mb_s = len(part) / 1e6 / (time.process_time() - started)
    mb_s = size_mb / read_seconds
    print(f"DCP index of {entries} chunks, {size_mb:.0f} MB: read in {read_seconds:.1f} CPU s ({mb_s:.0f} MB/s)")
    print(
        f"  pickletools.genops: {compared_mb_s:.1f} MB/s over its first {len(part) / 1e6:.0f} MB; {mb_s / compared_mb_s:.0f} ×"
    )
    print(f"  needed bytes, roles and the weights' ranges: {asked_seconds:.2f} CPU s; peak {peak_mib:.0f} MiB")
    file.unlink()


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [256], "data_offsets": [0, 256]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(256)


def run_of(root: Path, steps: int, files: int) -> None:
    """Checkpoints of a Hugging Face trainer with `files` files each, most of them shards."""
    shard = safetensors()
    names = [f"model-{number:05d}-of-{files - 3:05d}.safetensors" for number in range(1, files - 2)]
    weights = json.dumps({"weight_map": {f"w{number}": name for number, name in enumerate(names)}})
    for step in range(1, steps + 1):
        folder = root / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_bytes(shard)
        (folder / "model.safetensors.index.json").write_text(weights)
        (folder / "config.json").write_text("{}")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))


def bench_steps(root: Path, steps: int, files: int) -> None:
    run_of(root, steps, files)
    know = recogniser()
    started = time.perf_counter()
    found = list(know.find(root))
    taken = time.perf_counter() - started
    assert [one.step for one in found] == list(range(1, steps + 1)), found[:2]
    assert {one.verdict.value for one in found} == {"complete"}, found[0].why
    total = steps * files
    print(f"{steps} steps of {files} files: judged in {taken:.1f} s, {total / taken:,.0f} files/s")
    started = time.perf_counter()
    assert list(know.find(root, skip=lambda _: True)) == []
    skipped = time.perf_counter() - started
    print(f"  all of them known already: {skipped:.2f} s, {total / skipped:,.0f} files/s")
    started = time.perf_counter()
    found_one = know.judge(root / f"checkpoint-{steps}")
    print(f"  the newest alone: {1000 * (time.perf_counter() - started):.1f} ms ({found_one.verdict})")


def home(root: Path, files: int) -> None:
    """Folders as people have them: code, notes, pictures by year, data in numbered files, Git objects."""
    suffixes = (".py", ".txt", ".jpg", ".npy", ".json", ".md", ".log", ".parquet", "", ".csv")
    per_folder = 50
    for number in range(files // per_folder):
        branch = (f"project-{number % 37}", f"src/pkg_{number}", f"photos/{2000 + number % 25}/{number % 12:02d}", "data",
                  f".git/objects/{number % 256:02x}", f"logs/run_{number}")[number % 6]  # fmt: skip
        folder = root / f"{number % 97}" / branch / f"part{number}"
        folder.mkdir(parents=True)
        for one in range(per_folder):
            (folder / f"file_{one:04d}{suffixes[one % len(suffixes)]}").touch()


def bench_home(root: Path, files: int) -> None:
    home(root, files)

    def walked() -> float:
        started = time.perf_counter()
        for at, _, names in os.walk(root):
            for name in names:
                os.lstat(os.path.join(at, name))
        return time.perf_counter() - started

    walked()
    compared = min(walked() for _ in range(3))
    know = recogniser()
    times = []
    for _ in range(3):
        started = time.perf_counter()
        assert list(know.find(root)) == []
        times.append(time.perf_counter() - started)
    taken = min(times)
    print(
        f"a tree of {files} files, none of a checkpoint: {taken:.2f} s, {files / taken:,.0f} files/s, nothing recognised"
    )
    print(f"  os.walk with lstat: {compared:.2f} s; {taken / compared:.2f} × its time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--home", type=int, default=200_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench_index(folder, chosen.chunks)
        bench_steps(folder / "run", chosen.steps, chosen.files)
        shutil.rmtree(folder / "run")
        bench_home(folder / "home", chosen.home)


if __name__ == "__main__":
    main()

"""Pickles as streams of opcodes: nothing is built, and any bytes have a verdict in bounded time and memory."""

import contextlib
import io
import os
import pickle
import pickletools
import subprocess
import sys

import pytest
from hypothesis import example, given, settings, strategies as st

from lakemark.formats.readers import dcp_metadata
from lakemark.formats.readers.dcp_metadata import TooLarge, parse, ranges
from lakemark.formats.readers.folder import Folder
from lakemark.formats.readers.pickle_stream import Cut, PickleReader, TooLong, Unfit

from tests.formats.builders import ROLES, Chunk, dcp, dcp_metadata as metadata_bytes, pickled, save  # isort: skip

LIMIT = 1 << 30


def read(data, *, limit=LIMIT):
    reader = PickleReader(io.BytesIO(data), limit_bytes=limit)
    reader.run()
    return reader


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.frozensets(st.text())
    ),
    max_leaves=40,
)


@given(value=VALUES, protocol=st.integers(0, 5))
@example(value={"a" * 70_000: b"b" * 70_000, "n": 1 << 70_000}, protocol=4)
@example(value=bytearray(b"x" * 300), protocol=5)
@example(value=["x" * 255, "x" * 256, -1, 255, 256, 65536, 1 << 40], protocol=2)
def test_every_pickle_is_read_to_its_end(value, protocol):
    data = pickle.dumps(value, protocol)
    reader = read(data + b"more")
    assert reader.read_bytes == len(data)
    assert len(reader.stack) == 1
    assert reader.marks == []


@given(value=VALUES, protocol=st.integers(2, 5), cut=st.floats(0, 0.999))
def test_a_cut_pickle_is_cut(value, protocol, cut):
    data = pickle.dumps(value, protocol)
    with pytest.raises(Cut):
        read(data[: int(len(data) * cut)])


@given(data=st.binary(max_size=400))
@example(data=b"u")
@example(data=b"(u.")
@example(data=b"R.")
@example(data=b"\x94.")
@example(data=b"0.")
@example(data=b"b.")
@example(data=b"Nb.")
@example(data=b"I9x\n.")
@example(data=b"gx\n.")
@example(data=b"")
def test_any_bytes_end_in_a_verdict(data):
    with contextlib.suppress(Unfit):
        assert 0 < read(data).read_bytes <= len(data)


def test_strings_and_integers_are_what_they_were():
    assert read(pickle.dumps("aä", 4)).stack == ["aä"]
    for value in (0, 255, 256, 65_535, 65_536, -7, 1 << 31, 1 << 60, -(1 << 60)):
        for protocol in range(6):
            assert read(pickle.dumps(value, protocol)).stack == [value], (value, protocol)


BOMBS = {
    "100 MB string": (b"\x80\x04X" + (100_000_000).to_bytes(4, "little"), b"x" * 100_000_000, b"."),
    "a string that says 2**63": (b"\x80\x04\x8d" + (1 << 63).to_bytes(8, "little"), b"x" * 1000),
    "deep lists": (b"\x80\x04", b"]" * 8_000_000, b"a" * 8_000_000, b"."),
    "deep marks": (b"\x80\x04", b"(" * 8_000_000, b"."),
    "wide": (b"\x80\x04(", b"N" * 8_000_000, b"t."),
    "copies": (b"\x80\x04X\x04\0\0\0abcd", b"2" * 8_000_000, b"."),
    "memo": (b"\x80\x04X\x04\0\0\0abcd", b"".join(b"r" + n.to_bytes(4, "little") for n in range(4_000_000)), b"."),
    "a line": (b"I", b"1" * 8_000_000, b"\n."),
    "an integer": (b"\x8b" + (8_000_000).to_bytes(4, "little"), b"\x7f" * 8_000_000, b"."),
}
SAID = {
    "a string that says 2**63": "cut at byte 1011",
    "deep lists": "holds too much at once",
    "deep marks": "nested deeper than 10000",
    "wide": "holds too much at once",
    "copies": "holds too much at once",
    "memo": "holds too much at once",
    "a line": "a line of more than 65536 bytes",
}
MEASURED = """
import io, resource, sys
from lakemark.formats.readers.pickle_stream import PickleReader, Unfit
stream = open(sys.argv[1], "rb")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    PickleReader(stream, limit_bytes=1 << 30).run()
except Unfit as error:
    print(error)
after = resource.getrusage(resource.RUSAGE_SELF)
print((after.ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name, tmp_path):
    file = tmp_path / "bomb"
    with file.open("wb") as stream:
        stream.writelines(BOMBS[name])
    done = subprocess.run([sys.executable, "-c", MEASURED, str(file)], check=True, capture_output=True, text=True)
    grown_mib = int(done.stdout.splitlines()[-1])
    assert SAID.get(name, "") in done.stdout
    assert grown_mib < (600 if name == "memo" else 100)


def test_a_limit():
    data = pickle.dumps({"a": list(range(100_000))}, 4)
    with pytest.raises(TooLong):
        read(data, limit=1000)
    read(data, limit=len(data))


class Bad:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_called(tmp_path, protocol):
    made = tmp_path / "made"
    data = pickle.dumps({"fqn": Bad(made), "relative_path": Bad(made)}, protocol)
    read(data)
    parse(io.BytesIO(data))
    assert not made.exists()
    pickle.loads(data[:0] or pickle.dumps(Bad(made), protocol))
    assert made.exists()  # it would have been


CHUNKS = st.lists(
    st.builds(
        Chunk,
        fqn=st.sampled_from(["model.a", "model.b", "optim.c", "rng", "x" * 300]) | st.text(min_size=1, max_size=5),
        file=st.sampled_from(["__0_0.distcp", "__1_0.distcp", "__12_3.distcp"]),
        offset=st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 1 << 31, 1 << 40]) | st.integers(0, 1 << 50),
        length=st.integers(0, 1 << 45),
        at=st.none() | st.tuples() | st.tuples(st.integers(0, 1 << 33)) | st.tuples(*[st.integers(0, 300)] * 5),
    ),
    max_size=12,
)


class Slow(dcp_metadata._Reader):
    """Every opcode by itself."""

    def shortcut(self, data, at):
        return at


@settings(max_examples=60)
@given(chunks=CHUNKS, protocol=st.integers(0, 5))
def test_entries_are_those_that_were_written(chunks, protocol):
    data = metadata_bytes(chunks, protocol=protocol)
    found = parse(io.BytesIO(data))
    said = sorted((one.fqn, one.path, one.offset, one.length) for one in found.entries())
    assert said == sorted((one.fqn, one.file, one.offset, one.length) for one in chunks)
    slow = Slow(io.BytesIO(data), limit_bytes=LIMIT)
    slow.run()
    assert sorted(slow.made().entries()) == sorted(found.entries())
    fast = dcp_metadata._Reader(io.BytesIO(data), limit_bytes=LIMIT)
    fast.run()
    assert (fast.memoized, fast.memo) == (slow.memoized, slow.memo)
    if protocol >= 4:
        assert fast.memoized == sum(op.name == "MEMOIZE" for op, _, _ in pickletools.genops(data))
    needed = {}
    for chunk in chunks:
        needed[chunk.file] = max(needed.get(chunk.file, 0), chunk.offset + chunk.length)
    assert found.needed_bytes == needed


def test_the_shortcut_is_taken():
    """Else what compares it with the slow way compares nothing."""
    chunks = [Chunk(f"model.{n % 7}", at=(n, 300)) for n in range(300)]
    seen = []

    class Watched(dcp_metadata._Reader):
        def shortcut(self, data, at):
            after = super().shortcut(data, at)
            seen.append(after - at)
            return after

    Watched(io.BytesIO(metadata_bytes(chunks)), limit_bytes=LIMIT).run()
    assert sum(seen) > 0.8 * len(metadata_bytes(chunks))


def test_ranges_of_roles():
    chunks = [Chunk("model.a", "f", 0, 10), Chunk("optim.a", "f", 10, 5), Chunk("model.b", "f", 15, 5),
              Chunk("model.c", "f", 20, 5), Chunk("optim.b", "g", 0, 9), Chunk("model.d", "f", 18, 4)]  # fmt: skip
    found = parse(io.BytesIO(metadata_bytes(chunks)))
    assert ranges(found, {"weights"}) == {"f": [(0, 10), (15, 10)]}
    assert ranges(found, {"weights", "optimizer"}) == {"f": [(0, 25)], "g": [(0, 9)]}
    assert ranges(found, {"rng"}) == {}


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (ROLES, "weights optimizer scheduler rng dataloader"),
        (("layers.0.wq.weight", "optimizer.state.0.step", "train_state.step"), "weights optimizer trainer"),
        (("app.model.w", "app.optimizer.w", "app.lr_scheduler.x"), "weights optimizer scheduler"),
        (("state.model.w", "state.optimizers.Adam.x", "state.rng"), "weights optimizer rng"),
        (("mine.net.w", "mine.optim.w"), "weights optimizer"),
        (("state.w", "state.b"), "weights"),
        (("outer.inner.layer.weight", "outer.inner.layer.bias"), "weights"),
        (("model.w", "chained_0.optimizer.x", "opt_param_scheduler", "rng_state"), "weights optimizer scheduler rng"),
        (("model.scheduler.weight", "model.optimizer_head.bias"), "weights"),
        (("model_state_dict.w", "optimizer_state_dict.w", "random_state"), "weights optimizer rng"),
    ],
)
def test_roles_of_names(names, roles):
    found = parse(io.BytesIO(metadata_bytes([Chunk(name) for name in names])))
    assert found.present == set(roles.split())


def test_an_object_of_which_nothing_is_known_is_no_weight():
    found = parse(io.BytesIO(metadata_bytes([Chunk("model.w"), Chunk("mystery", at=None)])))
    assert found.roles == {"model.w": "weights", "mystery": "other"}


def test_a_large_one_is_not_read(tmp_path):
    with save(tmp_path / ".metadata").open("r+b") as stream:
        stream.truncate(dcp_metadata.LARGEST_BYTES + 1)
    with pytest.raises(TooLarge, match=f"not read: {dcp_metadata.LARGEST_BYTES + 1} bytes"):
        dcp_metadata.read(Folder.of(tmp_path))


def test_it_is_read_once_until_it_changes(tmp_path):
    dcp(tmp_path)
    first = dcp_metadata.read(Folder.of(tmp_path))
    assert dcp_metadata.read(Folder.of(tmp_path)) is first
    os.utime(tmp_path / ".metadata", ns=(1, 1))
    assert dcp_metadata.read(Folder.of(tmp_path)) is not first


def test_no_entries_of_nonsense():
    assert len(parse(io.BytesIO(pickled({"relative_path": 3, "fqn": ["x"]})))) == 0
    with pytest.raises(Unfit):
        parse(io.BytesIO(metadata_bytes([Chunk("a", offset=1 << 62)])))

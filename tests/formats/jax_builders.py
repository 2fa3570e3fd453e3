"""Checkpoints of the JAX, Keras and TensorFlow families, as their libraries write them, without the libraries."""

import io
import json
import struct
import zipfile

from tests.formats.builders import as_json, save

TMP = ".orbax-checkpoint-tmp"


def ocdbt_file(magic=0x0CDB20DE, payload=b"\1" + b"z" * 40):
    """A node of the store, or with 0x0CDB3A2A its manifest: magic, its own length, then what only a decompressor reads."""
    return struct.pack(">I", magic) + struct.pack("<Q", 12 + len(payload)) + payload


MANIFEST = ocdbt_file(0x0CDB3A2A)


def leaf(*keys, kind="jax.Array"):
    value = {"value_type": kind, "skip_deserialize": False}
    return str(keys), {"key_metadata": [{"key": key, "key_type": 2} for key in keys], "value_metadata": value}


LEAVES = (leaf("params", "w"), leaf("opt_state", "0", "mu", "w"), leaf("step", kind="scalar"))


def tree(leaves=LEAVES, *, ocdbt=True, full=True):
    return {"tree_metadata": dict(leaves), "use_ocdbt": ocdbt, "store_array_data_equal_to_fill_value": full}


def orbax_state(folder, *, processes=1, leaves=LEAVES, old=False):
    """One item with OCDBT. old: as before 0.11.9, which tell of no process."""
    as_json(folder / "_METADATA", tree(leaves))
    as_json(folder / "_sharding", {"cGFyYW1zLnc=": "cpu:0"})
    save(folder / "manifest.ocdbt", MANIFEST)
    save(folder / "d/2df68153e9129c727120cec1d77ad758", ocdbt_file())
    for process in range(processes):
        if not old:
            as_json(folder / f"array_metadatas/process_{process}", {"array_metadatas": []})
        save(folder / f"ocdbt.process_{process}/manifest.ocdbt", MANIFEST)
        save(folder / f"ocdbt.process_{process}/d/827f8eb7c65ec015c7fad2d58889c196", ocdbt_file())


def orbax_zarr(folder, *, arrays=("params.w", "opt_state.0.mu.w", "step"), shape=(8, 8), chunks=(4, 8), leaves=LEAVES):
    """One item with an array per folder."""
    as_json(folder / "_METADATA", tree(leaves, ocdbt=False))
    as_json(folder / "_sharding", {"cGFyYW1zLnc=": "cpu:0"})
    for name in arrays:
        zarr(folder / name, shape=() if name == "step" else shape, chunks=() if name == "step" else chunks)


def zarr(folder, *, shape=(8, 8), chunks=(4, 8), version=2):
    if version == 2:
        as_json(folder / ".zarray", {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<f4"})
    else:
        grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
        as_json(folder / "zarr.json", {"zarr_format": 3, "shape": shape, "chunk_grid": grid})
    counts = [-(-length // size) for length, size in zip(shape, chunks, strict=True)]
    for at in _indices(counts):
        joined = (".".join(map(str, at)) or "0") if version == 2 else "/".join(["c", *map(str, at)])
        save(folder / joined, b"chunk")


def _indices(counts):
    if not counts:
        yield ()
        return
    for first in range(counts[0]):
        yield from ((first, *rest) for rest in _indices(counts[1:]))


def orbax(folder, *, items=("state",), processes=1, committed=1795966639757099094, marked=True, handlers=None):
    """A whole step of 0.12."""
    by = {"state": "orbax.StandardCheckpointHandler", "rng": "orbax.JaxRandomKeyCheckpointHandler"}
    by |= {
        "data_iter": "grain._src.python.checkpoint.handler.CheckpointHandler",
        "metrics": "orbax.JsonCheckpointHandler",
    }
    named = (
        handlers if handlers is not None else {item: by.get(item, "orbax.PyTreeCheckpointHandler") for item in items}
    )
    as_json(folder / "_CHECKPOINT_METADATA", {"item_handlers": named, "commit_timestamp_nsecs": committed})
    for item in items:
        if item == "data_iter":
            for process in range(processes):
                as_json(folder / item / f"process_{process}-of-{processes}.json", {"next_index": 5})
        elif item == "metrics":
            as_json(folder / item / "metrics", {"loss": 1.0})
        elif item == "rng":
            orbax_zarr(folder / item / "jax_random_key", arrays=("checkpoint",), leaves=(leaf("checkpoint"),))
        else:
            orbax_state(folder / item, processes=processes)
        if marked:
            save(folder / item / "commit_success.txt", f"Checkpoint commit was successful to {folder}/{item}")
    if marked:
        save(folder / "commit_success.txt", f"Checkpoint commit was successful to {folder}")


def msgpack(value):
    """Strings, bytes (as Flax's array extension), numbers, None, lists, and maps of them."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"\xc9" + struct.pack(">IB", len(value), 1) + value
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xdb" + struct.pack(">I", len(text))) + text
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(msgpack, value))
    head = bytes([0x80 | len(value)]) if len(value) < 16 else b"\xdf" + struct.pack(">I", len(value))
    return head + b"".join(msgpack(key) + msgpack(one) for key, one in value.items())


STATE = {"step": 900, "params": {"w": b"w" * 300}, "opt_state": {"0": {"count": 900, "mu": {"w": b"m" * 300}}}}


def t5x(folder, *, hosts=1):
    def spec(name):
        return {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{name}/"}}

    names = {"target": "target.encoder.kernel", "v": "state.param_states.encoder.kernel.v"}
    state = {"target": {"kernel": spec(names["target"])}, "state": {"step": 5, "param_states": spec(names["v"])}}
    save(folder / "checkpoint", msgpack({"version": 3, "optimizer": state}))
    for name in names.values():
        zarr(folder / name)
    for host in range(hosts):
        save(folder / f"train_ds-{host:03d}-of-{hosts:03d}.index", b"\0" * 60)
        save(folder / f"train_ds-{host:03d}-of-{hosts:03d}.data-00000-of-00001", b"\0" * 64)


def hdf5(names=("layers", "optimizer", "vars"), *, tail=b"\0" * 200):
    """Superblock version 0 whose root caches where its names lie, a heap with these names, and data."""
    heap_data = b"\0" * 8 + b"".join(name.encode() + b"\0" * (8 - len(name) % 8) for name in names)
    heap_at, data_at = 96, 96 + 32
    heap = b"HEAP\0\0\0\0" + struct.pack("<QQQ", len(heap_data), 1, data_at)
    end = data_at + len(heap_data) + len(tail)
    root = struct.pack("<QQII", 0, 96, 1, 0) + struct.pack("<QQ", 136, heap_at)
    super_block = b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", 4, 16, 0)
    super_block += struct.pack("<QQQQ", 0, 2**64 - 1, end, 2**64 - 1) + root
    return super_block + heap + heap_data + tail


def keras(*, weights=None, leave_out=()):
    buffer = io.BytesIO()
    files = {"metadata.json": b"{}", "config.json": b"{}", "model.weights.h5": weights or hdf5()}
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            if name not in leave_out:
                archive.writestr(name, content)
    return buffer.getvalue()


def varint(number):
    text = b""
    while number > 127:
        text += bytes([number & 127 | 128])
        number >>= 7
    return text + bytes([number])


def block(entries):
    """A LevelDB block with prefix-compressed keys, a type byte (0: not compressed) and a checksum nobody reads."""
    content, before = b"", b""
    for key, value in entries:
        shared = next(
            (at for at, (a, b) in enumerate(zip(before, key, strict=False)) if a != b), min(map(len, (before, key)))
        )
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return content + struct.pack("<II", 0, 1) + b"\0" + b"crc!"


def tf_index(tensors, *, files=1):
    """tensors: key -> (number of the data file, offset, size)."""
    entries = [(b"", b"\x08" + varint(files))]
    for key, (shard, offset, size) in sorted(tensors.items()):
        value = b"\x08\x01" + b"\x12\x00" + b"\x18" + varint(shard) + b"\x20" + varint(offset) + b"\x28" + varint(size)
        entries.append((key.encode(), value + b"\x35abcd"))
    data = block(entries)
    index = block([(entries[-1][0], varint(0) + varint(len(data) - 5))])
    empty = block([])
    footer = varint(len(data) + len(index)) + varint(len(empty) - 5) + varint(len(data)) + varint(len(index) - 5)
    return data + index + empty + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


KEYS = {
    "_CHECKPOINTABLE_OBJECT_GRAPH": (0, 0, 100),
    "iterator/.ATTRIBUTES/ITERATOR_STATE": (0, 100, 10),
    "model/w/.ATTRIBUTES/VARIABLE_VALUE": (0, 110, 400),
    "model/w/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE": (0, 510, 400),
}


def tensorflow(folder, prefix, *, keys=None, files=1):
    keys = keys or KEYS
    for number in range(files):
        needed = max((at + size for shard, at, size in keys.values() if shard == number), default=0)
        save(folder / f"{prefix}.data-{number:05d}-of-{files:05d}", b"\1" * needed)
    save(folder / f"{prefix}.index", tf_index(keys, files=files))


def tf_pointer(folder, newest):
    save(folder / "checkpoint", f'model_checkpoint_path: "{newest}"\nall_model_checkpoint_paths: "{newest}"\n')


def dumps(value):
    return json.dumps(value).encode()


def _table(paths):
    """OCDBT's table of data files: nothing shared between names; what lies before `d/` is the path of the store."""
    names = [path.encode() for path in paths]
    bases = [name.rfind(b"d/") for name in names]
    numbers = [len(names), *[0] * (len(names) - 1), *map(len, names), *bases] if names else [0]
    return b"".join(map(varint, numbers)) + b"".join(names)


def _columns(*columns):
    return b"".join(varint(number) for column in columns for number in column)


def _framed(magic, body, *, version=0):
    content = varint(version) + b"\0" + body
    return struct.pack(">I", magic) + struct.pack("<Q", 12 + len(content) + 4) + content + b"crc!"


def ocdbt_leaf(values, path):
    """A node of keys and of where their values lie: `length` bytes at `offset` of `path`; a value of bytes lies in it."""
    keys = [key.encode() for key in values]
    inline = [value for value in values.values() if isinstance(value, bytes)]
    apart = [value for value in values.values() if not isinstance(value, bytes)]
    lengths = [len(value) if isinstance(value, bytes) else value[1] for value in values.values()]
    kinds = [int(not isinstance(value, bytes)) for value in values.values()]
    body = b"\0" + _table([path]) + varint(len(keys)) + _columns([0] * (len(keys) - 1), map(len, keys)) + b"".join(keys)
    body += _columns(lengths, kinds, [0] * len(apart), [offset for offset, _ in apart]) + b"".join(inline)
    return _framed(0x0CDB20DE, body)


def ocdbt_inner(children, *, height=1, prefix=0):
    """children: key -> (file, offset, length) of a node; of that key its keys leave `prefix` characters out."""
    keys, files = [key.encode() for key in children], [file for file, _, _ in children.values()]
    body = bytes([height]) + _table(files) + varint(len(keys))
    body += _columns([0] * (len(keys) - 1), map(len, keys), [prefix] * len(keys)) + b"".join(keys)
    body += _columns(range(len(files)), *zip(*((at, size) for _, at, size in children.values()), strict=True))
    return _framed(0x0CDB20DE, body + _columns(*[[1] * len(files)] * 3))


def ocdbt_manifest(file, size, *, height=0, version=0, kind=0):
    """Whose newest version has its root at the beginning of `file`."""
    body = b"u" * 16 + _columns([kind, 100, 10_000]) + b"\4" + b"\1" + struct.pack("<i", 0)
    body += _table([file]) + varint(1) + varint(1) + bytes([height])
    body += _columns([0], [0], [size], [1], [size], [0]) + struct.pack("<Q", 1) + varint(0)
    return _framed(0x0CDB3A2A, body, version=version)


def ocdbt_store(folder, arrays=("params.w", "opt_state.0.mu.w", "step"), *, processes=2):
    """What Orbax leaves: each process's node and values in files of its own, and a root that names these nodes."""
    children = {}
    for process in range(processes):
        mine, at = {}, f"ocdbt.process_{process}"
        for number, name in enumerate(arrays[process::processes]):
            mine[f"{name}/.zarray"] = b"{}"
            mine[f"{name}/0"] = (number * 100, 100)
        node, file = ocdbt_leaf(mine, "d/value"), f"{at}/d/node"
        save(folder / file, node)
        save(folder / at / "d/value", b"v" * 100 * len(arrays[process::processes]))
        save(folder / at / "manifest.ocdbt", ocdbt_manifest("d/node", len(node)))
        children[arrays[process]] = (file, 0, len(node))
    root = ocdbt_inner(children)
    save(folder / "d/root", root)
    save(folder / "manifest.ocdbt", ocdbt_manifest("d/root", len(root), height=1))

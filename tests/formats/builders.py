"""What the tests of formats make checkpoints of: files as each serialiser writes them, without the serialisers."""

import io
import json
import os
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path


def save(path, content=b"x"):
    """A file with its folders."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_json(path, value):
    return save(path, json.dumps(value))


def safetensors(tensors=("w",), size=12):
    """A whole safetensors file of byte tensors."""
    header = {
        name: {"dtype": "U8", "shape": [size], "data_offsets": [at * size, (at + 1) * size]}
        for at, name in enumerate(tensors)
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size * len(tensors))


class _Globals(pickle._Pickler):  # the pure Python one: its methods can be overridden
    """Writes a class as the module and name it says it has, whether or not that can be imported."""

    def save_global(self, obj, name=None):
        module, name = obj.__module__, name or obj.__qualname__
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    def persistent_id(self, obj):
        return ("storage", FloatStorage, obj.key, "cpu", obj.length) if isinstance(obj, Storage) else None


def pickled(value, protocol=4):
    """Bytes of a pickle whose classes say that they are torch's."""
    buffer = io.BytesIO()
    _Globals(buffer, protocol).dump(value)
    return buffer.getvalue()


def _torch(module):
    def named(cls):
        cls.__module__ = module
        cls.__qualname__ = cls.__name__
        return cls

    return named


@_torch("torch")
class FloatStorage:
    pass


@dataclass
class Storage:
    key: str
    length: int


@dataclass
class Tensor:
    """Of one dimension."""

    storage: Storage

    def __reduce__(self):
        return _Rebuild(), (self.storage, 0, (self.storage.length,), (1,), False, OrderedDict())


@_torch("torch._utils")
class _Rebuild:
    """A callable that pickles as torch's function."""

    def __call__(self, *_):
        raise AssertionError

    def __reduce__(self):
        return "_rebuild_tensor_v2"


def torch_zip(keys=("model",), *, name="archive", values=None, protocol=2, payload=b"\0" * 256):
    """As `torch.save` writes a dict: a stored zip of `<name>/data.pkl`, one record per storage, and a version.

    keys: of the dict, each with a small state dict; values: key -> its value, instead.
    """
    value = values if values is not None else {key: {"w": [1.5], "step": 7} for key in keys}
    return torch_zip_of(pickled(value, protocol), name=name, payload=payload)


def torch_zip_of(data, *, name="archive", payload=b"\0" * 256):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{name}/data.pkl", data)
        archive.writestr(f"{name}/byteorder", "little")
        archive.writestr(f"{name}/data/0", payload)
        archive.writestr(f"{name}/version", "3\n")
    return buffer.getvalue()


def torch_old(value, storages, protocol=2):
    """As `torch.save` wrote before the zips. storages: key -> how many floats; the value's tensors are in these."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    data = b"".join(pickle.dumps(one, protocol) for one in head) + pickled(value, protocol)
    data += pickle.dumps(sorted(storages), protocol)
    return data + b"".join(
        storages[key].to_bytes(8, "little") + os.urandom(4 * storages[key]) for key in sorted(storages)
    )


@_torch("torch")
class Size(tuple):
    __slots__ = ()

    def __reduce__(self):
        return Size, (tuple(self),)


@_torch("torch.distributed.checkpoint.metadata")
class Metadata:
    pass


@_torch("torch.distributed.checkpoint.metadata")
class TensorStorageMetadata:
    pass


@_torch("torch.distributed.checkpoint.metadata")
class BytesStorageMetadata:
    pass


@_torch("torch.distributed.checkpoint.metadata")
class ChunkStorageMetadata:
    pass


@_torch("torch.distributed.checkpoint.metadata")
class MetadataIndex:
    pass


@_torch("torch.distributed.checkpoint.filesystem")
class _StorageInfo:
    pass


def _made(cls, **fields):
    made = cls()
    made.__dict__.update(fields)
    return made


@dataclass(frozen=True)
class Chunk:
    """One entry of a DCP checkpoint: `length` bytes at `offset` of a data file. at: where in the tensor; None: no tensor."""

    fqn: str
    file: str = "__0_0.distcp"
    offset: int = 0
    length: int = 100
    at: tuple = (0,)


def dcp_metadata(chunks, *, protocol=4, plans=()):
    """The bytes of `.metadata`, as torch 2.13 writes it."""
    described, stored = {}, {}
    for number, chunk in enumerate(chunks):
        at = None if chunk.at is None else Size(chunk.at)
        if at is None:
            described.setdefault(chunk.fqn, _made(BytesStorageMetadata, chunks=[]))
        else:
            kept = described.setdefault(chunk.fqn, _made(TensorStorageMetadata, size=Size((9,)), chunks=[]))
            kept.chunks.append(_made(ChunkStorageMetadata, offsets=at, sizes=Size((9,) * len(chunk.at))))
        index = _made(MetadataIndex, fqn=chunk.fqn, index=number, **({} if at is None else {"offset": at}))
        stored[index] = _made(_StorageInfo, relative_path=chunk.file, offset=chunk.offset, length=chunk.length)
    planner = {chunk.fqn: tuple(chunk.fqn.split(".")) for chunk in chunks}
    value = _made(
        Metadata,
        state_dict_metadata=described,
        planner_data=planner,
        storage_data=stored,
        storage_meta=None,
        version="1.0.0",
        **({"all_local_plans": list(plans)} if plans else {}),
    )
    return pickled(value, protocol)


ROLES = ("model.w", "optimizer.state.w.exp_avg", "lr_scheduler.last_epoch", "rng.cpu", "dataloader.position")


def dcp(folder, *, ranks=1, fqns=ROLES, length=100, protocol=4):
    """A whole DCP checkpoint in `folder`: each rank's file has a chunk of each name."""
    chunks = [
        Chunk(fqn, f"__{rank}_0.distcp", at * length, length)
        for rank in range(ranks)
        for at, fqn in enumerate(fqns)
    ]  # fmt: skip
    for rank in range(ranks):
        save(folder / f"__{rank}_0.distcp", os.urandom(length * len(fqns)))
    save(folder / ".metadata", dcp_metadata(chunks, protocol=protocol))
    return chunks

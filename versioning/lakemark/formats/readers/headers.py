"""Is a file as long as its own format says? Headers, footers and end records only; nothing is decompressed or unpickled."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable
from typing import BinaryIO, Final

from lakemark.formats.readers import torch_old
from lakemark.formats.readers.folder import Folder, Unreadable

# safetensors itself refuses a longer one (MAX_HEADER_SIZE).
_LONGEST_HEADER_BYTES: Final = 100_000_000
_LONGEST_JSON_BYTES: Final = 8 * 2**20
# The end record has 22 bytes and a comment of at most 65,535, so it begins in these.
_TAIL_BYTES: Final = 66_000
_ZIP: Final = b"PK\x03\x04"
_END_OF_ZIP: Final = b"PK\x05\x06"
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
# kTableMagicNumber of TensorFlow's core/lib/io/format.h.
_TF_INDEX_MAGIC: Final = 0xDB4775248B80FB57
_BLOCK_BYTES: Final = 512
_GZIP: Final = b"\x1f\x8b"
# What a clone has instead of a file until `git lfs pull`.
_LFS: Final = b"version https://git-lfs"
# `.bin` may be anybody's; these names are given by transformers, diffusers, PEFT and Accelerate, which write them by torch.save.
_BY_TORCH: Final = re.compile(
    r"(?:pytorch_model|adapter_model|diffusion_pytorch_model|optimizer|scheduler|sampler|dl_state_dict|training_args)[-_.\w]*\.bin",
    re.ASCII,
)


def broken(folder: Folder, name: str) -> str | None:
    """Why the file `name` is not whole; None where it is, or where its format says nothing of its length."""
    check = _CHECKS.get(os.path.splitext(name)[1].lower())  # noqa: PTH122 - of a name, not a path
    # A habit of PyTorch's examples: a file of torch.save, no tar.
    if name.endswith(".pth.tar") or _BY_TORCH.fullmatch(name.rpartition("/")[2]):
        check = _torch
    return None if check is None else _checked(folder, name, check)


def broken_json(folder: Folder, name: str) -> str | None:
    """`broken` of a file that is JSON whatever its name says."""
    return _checked(folder, name, _json)


def _checked(folder: Folder, name: str, check: Callable[[BinaryIO, int], str | None]) -> str | None:
    try:
        with folder.open(name) as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            if stream.read(len(_LFS)) == _LFS:
                return "it is what Git LFS left in its place"
            stream.seek(0)
            return "it is empty" if size_bytes == 0 else check(stream, size_bytes)
    except Unreadable as error:
        return str(error)
    except OSError as error:
        return f"it can't be read: {error.strerror}"


def problems(folder: Folder, names: list[str]) -> list[str]:
    """`broken` of each, with its name."""
    return [f"{name}: {why}" for name in names if (why := broken(folder, name))]


def _zip(stream: BinaryIO, size_bytes: int) -> str | None:
    """PKWARE's APPNOTE: an archive ends with its end-of-central-directory record. One that doesn't start as a zip is old."""
    start = stream.read(4)
    if start != _ZIP:
        # Less than four bytes, and these begin a zip: cut. Anything else may be a pickle of old.
        cut = len(start) < len(_ZIP) and _ZIP.startswith(start)
        return "truncated zip (no end of central directory)" if cut else None
    stream.seek(max(0, size_bytes - _TAIL_BYTES))
    # A cut zip has no end record: the commonest damage by far, told without reading its directory.
    if _END_OF_ZIP not in stream.read(_TAIL_BYTES):
        return "truncated zip (no end of central directory)"
    stream.seek(0)
    # The four bytes may lie there by chance: now the record has to be one.
    return None if zipfile.is_zipfile(stream) else "damaged zip (its end record does not fit it)"


def _torch(stream: BinaryIO, size_bytes: int) -> str | None:
    """A zip, or pickles and storages of old; neither begins with zeros, as what a dead machine never wrote does."""
    why = _zip(stream, size_bytes)
    stream.seek(0)
    # After a power loss a file may have its full length and none of its bytes.
    if why or stream.read(4) == bytes(4):
        return why or "it begins with zeros"
    return torch_old.broken(stream, size_bytes)


def _must_be_zip(stream: BinaryIO, size_bytes: int) -> str | None:
    start = stream.read(4)
    stream.seek(0)
    return _zip(stream, size_bytes) if start == _ZIP else "it is no zip archive"


def _safetensors(stream: BinaryIO, size_bytes: int) -> str | None:
    """The README of safetensors: 8 bytes of length, little-endian, a JSON header of that length, then the tensors."""
    length = int.from_bytes(stream.read(8), "little")
    # First: the length of a header that is cut or is none is nonsense, and this says so plainly.
    if size_bytes < 8 + length:
        return "safetensors header cut"
    if length > _LONGEST_HEADER_BYTES:
        return f"safetensors header of {length} bytes, more than the format allows"
    try:
        tensors = json.loads(stream.read(length))
        # Tensors lie in any order of names; the one that ends last ends the file.
        ends = [row["data_offsets"][1] for name, row in tensors.items() if name != "__metadata__"]
        expected = 8 + length + int(max(ends, default=0))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "safetensors header damaged"
    # Exactly: safetensors refuses to load a file with anything behind the last tensor.
    return None if size_bytes == expected else f"{size_bytes} bytes, its header says {expected}"


def _json(stream: BinaryIO, size_bytes: int) -> str | None:
    """Of a long one only how it ends is looked at: built in memory it takes up to twenty times its length."""
    if size_bytes > _LONGEST_JSON_BYTES:
        stream.seek(-_TAIL_BYTES, os.SEEK_END)
        return None if stream.read().rstrip()[-1:] in (b"}", b"]") else "JSON cut"
    try:
        json.loads(stream.read())
    except (ValueError, RecursionError):
        return "JSON empty or cut"
    return None


def _hdf5(stream: BinaryIO, size_bytes: int) -> str | None:
    """HDF5 File Format Specification, superblock: its end-of-file address is the file's length, once it was closed.

    Until then its consistency flags say that it is open for writing.
    """
    start = stream.read(96)
    if not start.startswith(_HDF5):
        return "it is no HDF5 file"
    version = start[8] if len(start) > 8 else -1  # noqa: PLR2004 - the superblock's version
    if version in (0, 1):
        width = start[13] if len(start) > 13 else 8  # noqa: PLR2004 - where it is said
        # Before the end-of-file address lie the base address and the one of free space. Bit 0 of the flags: open for writing.
        at, flags = 24 + (4 if version else 0) + 2 * width, start[20:21]
    elif version in (2, 3):
        width = start[9] if len(start) > 9 else 8  # noqa: PLR2004 - where it is said
        # Versions 2 and 3 (h5py with libver="latest"): the base address and the one of the superblock's extension come before it.
        at, flags = 12 + 2 * width, start[11:12]
    else:
        return "HDF5 superblock cut" if version < 0 else None
    if at + width > len(start):
        return "HDF5 superblock cut"
    end = int.from_bytes(start[at : at + width], "little")
    # Cut. The other way round, below, the end of file was not brought forward yet: that is done when the file is closed.
    if end > size_bytes:
        return f"{size_bytes} bytes, its superblock says {end}"
    return "its writer did not close it" if flags[0] & 1 or end < size_bytes else None


def _tf_index(stream: BinaryIO, size_bytes: int) -> str | None:
    """A LevelDB table: its footer ends with this magic number."""
    stream.seek(max(0, size_bytes - 8))
    whole = int.from_bytes(stream.read(8), "little") == _TF_INDEX_MAGIC
    return None if whole else "cut (no table footer)"


def _tar(stream: BinaryIO, size_bytes: int) -> str | None:
    """POSIX ustar: headers of 512 bytes that say how long what follows is, then two empty blocks. Sizes only; no contents."""
    if stream.read(len(_GZIP)) == _GZIP:
        return None  # compressed: only reading all of it would tell
    at = 0
    while at + _BLOCK_BYTES <= size_bytes:
        stream.seek(at)
        header = stream.read(_BLOCK_BYTES)
        # The first of the two empty blocks that end an archive; what follows is padding.
        if header.count(0) == _BLOCK_BYTES:
            return None
        length = _tar_number(header[124:136])
        if length is None or header[257:262] != b"ustar":
            return "no tar archive" if at == 0 else "bad tar (damaged header)"
        # Contents are filled up to whole blocks.
        at += _BLOCK_BYTES + -(-length // _BLOCK_BYTES) * _BLOCK_BYTES
        if at > size_bytes:
            return "bad tar (a member is cut)"
    return "bad tar (no end)"


def _tar_number(field: bytes) -> int | None:
    # Base 256, as GNU tar and Python write the lengths that eleven octal digits can't say: from 8 GiB on.
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        return None


_CHECKS: Final[dict[str, Callable[[BinaryIO, int], str | None]]] = {
    ".pt": _torch,
    ".pth": _torch,
    # What begins as no zip passes: it may be anything.
    ".bin": _zip,
    ".ckpt": _torch,
    ".pkl": _torch,
    # fairseq's `checkpoint.pt.tmp` and such, before the rename.
    ".tmp": _zip,
    ".keras": _must_be_zip,
    ".npz": _must_be_zip,
    ".safetensors": _safetensors,
    ".json": _json,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".index": _tf_index,
    ".nemo": _tar,
}
"""By suffix. Not `.distcp`: zips one after the other, whose length its `.metadata` says."""

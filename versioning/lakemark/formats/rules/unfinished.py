"""Names of files that say: this is not done. They are never part of a checkpoint that is whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_OF_STATE: Final = "pt|pth|bin|ckpt|pkl|safetensors|distcp|json|h5|keras|index|msgpack|npz|txt"
_OF_ARRAYS: Final = r"\d+(?:\.\d+)*|[0-9a-f]{32}|.+\.data-\d{5}-of-\d{5}"
"""Chunks of Zarr, OCDBT's files, TensorFlow's data."""
_FILES: Final = re.compile(
    r"\.tmp[A-Za-z0-9_]{6}"  # safetensors and tempfile, pre-sized
    r"|(?:__\d+)?\.metadata\.tmp"  # PyTorch DCP
    rf"|.+\.(?:{_OF_STATE})(?:\.[0-9a-f]{{8}})?\.(?:tmp|part|partial|incomplete|temp)(?:[-_.].*)?"  # rclone's has a digest
    rf"|\.(?:.+\.(?:{_OF_STATE})|\.metadata|latest|{_OF_ARRAYS})\.[A-Za-z0-9]{{6}}"  # rsync
    rf"|(?:.+\.(?:{_OF_STATE})|\.metadata)\.(?=\d*[A-Fa-f])[0-9A-Fa-f]{{8}}|.+_\.gstmp"  # the AWS and Google Cloud command lines
    r"|.+\.dirty\.pt"  # NVRx
    r"|tmp[a-z0-9_]{8}\.distcp"  # OLMo-core
    r"|.+\.__lock"  # OCDBT
    r"|.+\.tempstate\d+",  # TensorFlow
    re.ASCII,
)


def unfinished(names: Iterable[str]) -> list[str]:
    """Those of the names (with `/`) whose last component says that it is unfinished."""
    return [name for name in names if _FILES.fullmatch(name.rpartition("/")[2])]


_LEFT_OVER: Final = re.compile(
    r".+(?:[._-](?:bak|old|orig|trash|backup|tmp|temp|part|partial|incomplete|inprogress|deleted?|corrupt(?:ed)?|broken)"
    r"[0-9]*|~)|(?:tmp|temp)[-_.].+",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)


def left_over(name: str) -> bool:
    """Whether the name of a folder says that it is unfinished, or put aside by somebody."""
    return _LEFT_OVER.fullmatch(name) is not None


# Hidden names are among them: rsync and most tools that rename begin a temporary name by a point.
_BEFORE_RENAMING: Final = re.compile(r"\..+|[_~#]*te?mp[-_.].+|.*[-_.]tmp[-_.].+", re.ASCII | re.IGNORECASE | re.DOTALL)


def before_renaming(name: str) -> bool:
    """Whether a file's name is one that is given until it is done: hidden, or `tmp` is a word of it."""
    return _BEFORE_RENAMING.fullmatch(name) is not None

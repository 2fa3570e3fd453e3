"""Names of files that say: this is not done. They are never part of a checkpoint that is whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_FILES: Final = re.compile(
    r"\.tmp[A-Za-z0-9_]{6}"  # safetensors and tempfile, pre-sized
    r"|(?:__\d+)?\.metadata\.tmp"  # PyTorch DCP
    r"|.+\.(?:pt|pth|bin|ckpt|safetensors|json|h5|keras|msgpack|npz|txt)\.(?:tmp|part|partial|incomplete|temp)(?:[-_.].*)?"
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

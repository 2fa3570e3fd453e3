"""Which of a checkpoint's files hold what, where a framework gives each its own name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping


def roles_in(folder: str | os.PathLike[str], names: Mapping[str, str]) -> dict[str, str]:
    """Of the files that lie in `folder` itself: name -> role.

    names: what a whole name matches -> its role; the first that fits counts. Raises OSError.
    """
    with os.scandir(folder) as entries:
        found = [entry.name for entry in entries if entry.is_file()]
    roles = {name: _role(name, names) for name in found}
    return {name: role for name, role in roles.items() if role is not None}


def _role(name: str, names: Mapping[str, str]) -> str | None:
    return next((role for pattern, role in names.items() if re.fullmatch(pattern, name, re.ASCII)), None)

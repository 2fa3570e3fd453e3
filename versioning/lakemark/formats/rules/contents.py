"""What a family finds in a folder while it judges one: collected here, then said as one `Found`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder, NameKind, Unreadable
from lakemark.formats.readers.torch_file import told
from lakemark.formats.rules.family import found
from lakemark.formats.rules.sets import holes, short_of
from lakemark.formats.rules.unfinished import unfinished
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

_SHARD: Final = re.compile(r"(.*model)-\d{5}-of-\d{5}(\.(?:safetensors|bin))", re.ASCII)
_COUNT: Final = re.compile(r".*-\d{5}-of-(\d{5})\.(?:safetensors|bin)", re.ASCII | re.DOTALL)
_PART: Final = re.compile(
    r"(?P<inside>(?:.*/)?)shard-(?P<rank>\d{5,7})-(?P<model>model-\d{5,7}-of-\d{5,7}\.safetensors)", re.ASCII
)
_LONGEST_INDEX_BYTES: Final = 64 * 2**20


class Contents:
    """files: everything in it at any depth, with `/`, sorted. What can't be listed or is no file is a problem at once."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.files: list[str] = []
        self.problems: list[str] = []
        self.roles: dict[str, str] = {}
        self.present: set[str] = set()
        self.possible: set[str] = set()
        self.ranks: dict[str, int] = {}
        self.ranks_told = False
        self.notes: list[str] = []
        for name, kind in folder.walk():
            if kind is NameKind.FILE:
                self.files.append(name)
            # A device, a pipe or a socket can't be sealed. Links are told of elsewhere.
            elif kind is NameKind.OTHER:
                self.problems.append(f"{name}: neither a file nor a directory")
        self.files.sort()
        self.unfinished = unfinished(self.files)
        # No framework leaves one in a save that it finished.
        self.problems.extend(f"temporary file {name} left" for name in self.unfinished)
        if folder.problem:
            self.problems.append(f"it can't be read: {folder.problem}")

    def has(self, *roles: Role) -> bool:
        """Whether a file of one of the roles, or one that holds it, is there."""
        return any(role in self.present or role in self.roles.values() for role in roles)

    def look_into(self, names: Sequence[str]) -> None:
        """Adds the roles that files of `torch.save` hold, by the keys in them."""
        inside = told(self.folder, names)
        self.present.update(inside.present)
        self.possible.update(inside.possible)

    def check(self) -> None:
        """Headers of every file, but of JSON that has no role and of an index of something else: these are the user's."""
        # A temporary file is cut by nature, and said so already.
        mine = [name for name in self.files if name not in self.unfinished]
        self.problems.extend(headers.problems(self.folder, [name for name in mine if self._is_known(name)]))

    def _is_known(self, name: str) -> bool:
        stem, _, suffix = name.rpartition(".")
        if suffix == "index":  # TensorFlow's, or of a search in vectors
            return any(one.startswith(f"{stem}.data-") for one in self.files)
        return suffix != "json" or name in self.roles

    def check_shards(self) -> None:
        """Hugging Face's shards: none missing, and the index that is written after them names those that are there.

        The parts of shards that each rank writes with DCP's `HuggingFaceStorageWriter` have no index; a rank that holds
        nothing of a shard has no part of it.
        """
        parts = [match for name in self.files if (match := _PART.fullmatch(name))]
        # A part of a shard has `-of-` in its name and is counted by its shard.
        strays = self.strays()
        whole = [name for name in self.files if not _PART.fullmatch(name) and name not in strays]
        self.problems.extend(short_of([*whole, *{f"{match['inside']}{match['model']}" for match in parts}]))
        ranks: dict[str, set[int]] = defaultdict(set)
        for match in parts:
            ranks[match["inside"]].add(int(match["rank"]))
        # `HuggingFaceStorageWriter` counts ranks from 1.
        self.problems.extend(hole for inside, seen in ranks.items() if (hole := holes(f"{inside}shard", seen, first=1)))
        for name in self.files:
            if name.endswith(".index.json") and name in self.roles:
                self.check_index(name)
        # A single file needs no index; shards without one can't be loaded.
        shards = {f"{match[1]}{match[2]}.index.json" for name in whole if (match := _SHARD.fullmatch(name))}
        self.problems.extend(f"no {index}" for index in sorted(shards.difference(self.files)))

    def strays(self) -> set[str]:
        """Shards that an index beside them does not name, as it names some of another count: a save to this folder left them.

        Each is noted. The index decides what is loaded.
        """
        found: set[str] = set()
        for index in (name for name in self.files if name.endswith(".index.json")):
            inside, _, base = index.rpartition("/")
            prefix = f"{inside}/" if inside else ""
            named = {f"{prefix}{shard}" for shard in self._named(index)}
            here = [name for name in self.files if name.rpartition("/")[0] == inside and name not in named]
            counts = {match[1] for name in named if (match := _COUNT.fullmatch(name))}
            stem = f"{prefix}{base.partition('.')[0]}-"
            for name in (name for name in here if name.startswith(stem)):
                match = _COUNT.fullmatch(name)
                if match and counts and match[1] not in counts:
                    found.add(name)
                    self.notes.append(f"{name} is of another save: {index} does not name it")
        return found

    def _named(self, index: str) -> list[str]:
        try:
            return [
                str(one)
                for one in json.loads(self.folder.text(index, longest_bytes=_LONGEST_INDEX_BYTES))[
                    "weight_map"
                ].values()
            ]
        except (Unreadable, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return []

    def check_index(self, name: str) -> None:
        """Every shard that a Hugging Face index names must be there."""
        named = self._named(name)
        if not named:
            self.problems.append(f"{name}: names no shards")
            return
        inside = name.rpartition("/")[0]
        there = {file for file in self.files if file.rpartition("/")[0] == inside}
        lacking = sorted({str(shard) for shard in named if f"{inside}/{shard}".lstrip("/") not in there})
        # A few are enough to say: a large model has hundreds.
        self.problems.extend(f"{shard} missing, {name} names it" for shard in lacking[:5])

    def found(
        self,
        framework: str,
        step: int | None,
        *,
        said: str = "",
        path: Path | None = None,
        members: Sequence[Path] = (),
    ) -> Found:
        return found(
            path or self.folder.path,
            framework,
            step,
            unique(self.problems),
            roles=self.roles,
            present=sorted(self.present),
            possible=sorted(self.possible),
            said=said,
            members=members,
            ranks=self.ranks,
            ranks_told=self.ranks_told,
            unfinished=self.unfinished,
            notes=unique(self.notes),
        )


def unique(texts: Iterable[str]) -> list[str]:
    """In order, each once."""
    return list(dict.fromkeys(texts))

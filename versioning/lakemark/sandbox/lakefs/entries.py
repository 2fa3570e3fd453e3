"""An object as a tree or a staging area knows it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from lakemark.sandbox.lakefs.identity import object_identity

__all__ = ["ObjectEntry"]


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """Path, bytes' name below the store's folder, MD5 in hex, size, instant in Unix seconds, user metadata."""

    path: str
    blob: str
    checksum: str
    size_bytes: int
    modified_s: int
    content_type: str
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return object_identity(
            size_bytes=self.size_bytes,
            checksum=self.checksum,
            metadata=self.metadata,
            content_type=self.content_type,
        )

    @property
    def etag(self) -> str:
        return f'"{self.checksum}"'

    def row(self) -> list[Any]:
        return [
            self.path,
            self.blob,
            self.checksum,
            self.size_bytes,
            self.modified_s,
            self.content_type,
            self.metadata,
        ]

    def dumped(self) -> str:
        return json.dumps(self.row(), ensure_ascii=False)

    @staticmethod
    def loaded(text: str) -> ObjectEntry:
        return ObjectEntry(*json.loads(text))

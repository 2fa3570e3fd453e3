"""`lakefs://repository/commit/path`: which data version, and what in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

SCHEME: Final = "lakefs://"
_REPOSITORY: Final = re.compile(r"[a-z0-9][a-z0-9-]{2,62}", re.ASCII)
_COMMIT: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class NotPinned(ValueError):
    """The address names a branch or a tag, which moves: what is read today is not what was read yesterday."""


@dataclass(frozen=True, slots=True)
class Address:
    """ref: a full commit id, or the name of a branch or tag where these are allowed. path: of an object, or a prefix."""

    repository: str
    ref: str
    path: str = ""

    @classmethod
    def of(cls, text: str) -> Self:
        """With the scheme or without. Raises ValueError."""
        rest = text.removeprefix(SCHEME).lstrip("/")
        repository, _, rest = rest.partition("/")
        ref, _, path = rest.partition("/")
        if not _REPOSITORY.fullmatch(repository) or not ref:
            message = f"{text[:300]!r} is not lakefs://repository/commit/path"
            raise ValueError(message)
        return cls(repository, ref, path)

    @property
    def pinned(self) -> bool:
        return _COMMIT.fullmatch(self.ref) is not None

    def require_pinned(self) -> Self:
        """Itself. Raises NotPinned."""
        if not self.pinned:
            raise NotPinned(
                f"{self.ref[:100]!r} of {self.repository} is no full commit id: a branch moves under a training run. Read "
                "`run.data_uri()`, or say moving=True to take the commit it stands at now"
            )
        return self

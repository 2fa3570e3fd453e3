"""From a file and an environment to `Settings`, remembering where each value is from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from lakemark.errors import Misconfigured, without_secrets
from lakemark.settings.document import Document, Key, Value, parse
from lakemark.settings.environment import overridden
from lakemark.settings.schema import Settings, read_settings
from lakemark.settings.search import SYSTEM, find, read
from lakemark.settings.section import InvalidError, known, section_schema, shown_section

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_MOST: Final = 5
# Addresses whose path is the secret, as those of chat services are.
_MASKED: Final = frozenset({("notify", "webhook"), ("notify", "heartbeat")})


class ShownSetting(NamedTuple):
    """A line of `config show`: a dotted key, its value as JSON, and where it is from.

    `source` is `FILE:LINE`, `environment NAME`, `host name` or `default`.
    """

    key: str
    value: object
    source: str


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Valid settings, the absolute path of their file, and the given values' sources by key."""

    settings: Settings
    file: Path
    sources: Mapping[Key, str]

    @property
    def home(self) -> Path:
        """The folder of the file, from which relative paths count."""
        return self.file.parent

    def shown(self) -> list[ShownSetting]:
        """Every value with its source; of addresses that hold a secret only the server."""
        document = shown_section(self.settings)
        return [
            ShownSetting(".".join(map(str, key)), _masked(key, value), self.sources.get(key, "default"))
            for key, value in _leaves(document, ())
        ]


def load(
    explicit: Path | None = None,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    hostname: str,
    system: Path = SYSTEM,
) -> Loaded:
    """Finds (see `search.find`), reads and checks the configuration; anything wrong is Misconfigured.

    `hostname` names the node where neither the file nor `$LAKEMARK_NODE` does.
    """
    file = find(explicit, environ=environ, cwd=cwd, system=system)
    return loads(read(file), file=file, environ=environ, hostname=hostname)


def loads(text: str, *, file: Path, environ: Mapping[str, str], hostname: str) -> Loaded:
    """As `load`, of text that is, or will be, the content of `file`, an absolute path."""
    document = parse(text, name=str(file))
    value, variables = overridden(document.value, environ=environ, known=known(Settings))
    sources = _sources(document, variables)
    # Before checking: the host's name must be a node's name as well.
    if "node" not in value:
        value["node"] = hostname
        sources["node",] = "host name"
    try:
        settings = read_settings(value, file.parent)
    except InvalidError as error:
        raise _misconfigured(error, sources, document.name) from None
    return Loaded(settings=settings, file=file, sources=sources)


def schema() -> dict[str, Any]:
    """The JSON schema of `lakemark.yaml`, for editors and people."""
    document = section_schema(Settings)
    document["required"].remove("node")  # the host's name, if nobody says otherwise
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "lakemark.yaml",
        **document,
    }


def _misconfigured(error: InvalidError, sources: Mapping[Key, str], name: str) -> Misconfigured:
    """At most five problems in one line, each with the place where its value was given."""
    told = []
    # A file of another version has a problem in each line; five show what kind it is.
    for problem in error.problems[:_MOST]:
        dotted = ".".join(map(str, problem.key))
        told.append(f"{_place(problem.key, sources, name)} `{dotted}` {problem.text}")
    more = len(error.problems) - _MOST
    return Misconfigured(
        "; ".join(told) + (f"; and {more} more" if more > 0 else ""),
        advice="Mend that; `lakemark config schema` tells what may stand there.",
    )


def _sources(document: Document, variables: Mapping[Key, str]) -> dict[Key, str]:
    given = {key: f"{document.name}:{line}" for key, line in document.lines.items()}
    return given | {key: f"environment {variable}" for key, variable in variables.items()}


def _place(key: Key, sources: Mapping[Key, str], name: str) -> str:
    """Where `key`, or the nearest thing around it, was given; `name` is the file."""
    for length in range(len(key), 0, -1):
        outer = key[:length]
        # A whole section has no line of its own where only the environment gave it.
        below = (source for given, source in sources.items() if given[:length] == outer)
        found = sources.get(outer) or next(below, None)
        if found:
            return f"{found}:"
    return f"{name}:"


def _leaves(value: Value, key: Key) -> Iterator[tuple[Key, Value]]:
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _leaves(child, (*key, name))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from _leaves(item, (*key, number))
    else:
        yield key, value


def _masked(key: Key, value: Value) -> Value:
    if not isinstance(value, str):
        return value
    if key not in _MASKED:
        return without_secrets(value)
    parts = urlsplit(value)
    return f"{parts.scheme}://{parts.netloc}/…"

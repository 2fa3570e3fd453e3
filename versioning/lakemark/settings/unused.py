"""Keys that are checked and shown, and that this version does not act on."""

from collections.abc import Iterator, Mapping
from typing import Final

from lakemark.settings.load import Loaded
from lakemark.settings.section import Section, read_section, shown_section

UNUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "retention": ("max_delete",),
    "objectives": ("rto",),
    "approval": ("prune_share",),
    "verify": ("every", "budget"),
    "drill": ("every", "command", "timeout", "scratch_max"),
    "flows": ("task_runner",),
    "serve": ("token_file", "proxy_header"),
    "notify": ("webhook", "heartbeat"),
}
UNUSED_OF_TIERS: Final = ("high_water", "low_water", "peers")
"""None or empty unless given."""


def unused(loaded: Loaded) -> Iterator[str]:
    """Dotted keys, as the schema has them in order, whose value has no effect: not the default, or said on purpose."""
    for name, tier in loaded.settings.tiers.items():
        shown = shown_section(tier)
        yield from (f"tiers.{name}.{key}" for key in UNUSED_OF_TIERS if shown.get(key))
    for name, keys in UNUSED.items():
        section: Section = getattr(loaded.settings, name)
        # Compared as shown: a value that is said and is the default has no effect that anybody could miss.
        given, usual = shown_section(section), shown_section(read_section(type(section), {}, loaded.home))
        yield from (f"{name}.{key}" for key in keys if given[key] != usual[key])
        if name == "retention" and given["apply"] and ("retention", "apply") in loaded.sources:
            # Not applying is what happens; who says that it be applied counts on deletions.
            yield "retention.apply"


def half_used(loaded: Loaded) -> Iterator[str]:
    """Keys given in the file that have less effect than their name promises, and which: `doctor` says so, nobody is alarmed."""
    if any(keys[:1] == ("retention",) for keys in loaded.sources):
        yield "retention (what is kept, admitted and thinned goes by it; nothing is pruned by it yet)"

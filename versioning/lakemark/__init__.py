"""lakemark keeps a model's checkpoints and the data they were trained on in step.

Going back in time brings both back. This page is the map of the public names;
each is loaded when it is first used, so ``import lakemark`` alone loads no
vendor library and needs nothing but the standard library.

Training code imports `lakemark.trainer` instead, which stands alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakemark.errors import LakemarkError
    from lakemark.ports import Site
    from lakemark.services.back.restore import restore
    from lakemark.services.back.resume import resume
    from lakemark.services.node.sweep import sweep
    from lakemark.services.runs.open_run import Opening, open_run
    from lakemark.services.saves.commit import commit
    from lakemark.services.saves.to_commit import Commit
    from lakemark.services.tiers.release import release
    from lakemark.services.tiers.replicate import replicate
    from lakemark.services.tiers.verify import verify
    from lakemark.site import open_site

_HOMES = {
    "Commit": "lakemark.services.saves.to_commit",
    "LakemarkError": "lakemark.errors",
    "Opening": "lakemark.services.runs.open_run",
    "Site": "lakemark.ports",
    "commit": "lakemark.services.saves.commit",
    "open_run": "lakemark.services.runs.open_run",
    "open_site": "lakemark.site",
    "release": "lakemark.services.tiers.release",
    "replicate": "lakemark.services.tiers.replicate",
    "restore": "lakemark.services.back.restore",
    "resume": "lakemark.services.back.resume",
    "sweep": "lakemark.services.node.sweep",
    "verify": "lakemark.services.tiers.verify",
}
"""Public name → the module that defines it."""

__all__ = [
    "Commit",
    "LakemarkError",
    "Opening",
    "Site",
    "commit",
    "open_run",
    "open_site",
    "release",
    "replicate",
    "restore",
    "resume",
    "sweep",
    "verify",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load a public name from its home module on first use."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *_HOMES})

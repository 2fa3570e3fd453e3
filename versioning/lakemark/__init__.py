"""lakemark keeps a model's checkpoints and the data they were trained on in step.

Going back in time brings both back. This page is the map of the public names;
each is loaded when it is first used, so ``import lakemark`` alone loads no
vendor library and needs nothing but the standard library.

Training code imports `lakemark.trainer` instead, which stands alone.
"""

from importlib import import_module

_HOMES: dict[str, str] = {}
"""Public name → the module that defines it."""

__all__: list[str] = []  # the keys of _HOMES, sorted
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

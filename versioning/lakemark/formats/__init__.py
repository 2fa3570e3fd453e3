"""Recognising checkpoints by file rules only: names and headers. Nothing is imported from a framework, nothing unpickled."""

from __future__ import annotations

from lakemark.formats.find.recogniser import (
    FrameworkRecogniser,  # before the function below takes the module's name here
)
from lakemark.ports import Recogniser


def recogniser() -> Recogniser:
    """One that knows the built-in frameworks and those of the entry-point group `lakemark.formats`. Raises Misconfigured."""
    from lakemark.formats.find.families import BUILT_IN, third_party
    from lakemark.formats.find.generic import GenericFamily

    return FrameworkRecogniser((*third_party(), *BUILT_IN), last=GenericFamily())

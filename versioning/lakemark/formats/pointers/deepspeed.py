"""DeepSpeed (`runtime/engine.py`): `latest` holds the tag, without a newline."""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.formats.pointers.rule import Beside, Rule, here, text
from lakemark.ports import Placed, Pointer, PointerKind


def _decide(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """`latest_universal`: the folder made from a tag for another number of ranks."""
    tag, lies = placed.path.name, here(placed, beside)
    yield text(placed, "latest", tag, "DeepSpeed loads the tag it names")
    # A run that never used universal checkpoints gets no pointer to one.
    if "latest_universal" in lies:
        universal = f"{tag}_universal"
        there = lies.get(universal)
        why = "DeepSpeed loads the universal checkpoint it names"
        if there is not None and not there.aside:
            yield text(placed, "latest_universal", universal, why)
        else:
            path = placed.path.parent / "latest_universal"
            yield Pointer(path=path, kind=PointerKind.GONE, why=f"{why}, and there is none of {tag}")


DEEPSPEED = Rule(
    framework="DeepSpeed",
    names="`latest`; `latest_universal`",
    set_to="the tag, without a newline; the tag's universal folder, else moved aside",
    without="`load_checkpoint` without a tag loads nothing and says so in the log: training starts anew",
    decide=_decide,
)

"""Being stopped: SIGTERM and SIGHUP end what was started just as Ctrl-C does, and ending is not stopped half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

__all__ = ["ignoring_signals", "interrupted_by_signals"]

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt meanwhile, as SIGINT does: `make`, systemd and a closed terminal send them."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(_ENDING, stop):
        yield


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """Nobody's patience stops this: what it leaves would run for ever. SIGKILL does."""
    with _handled((signal.SIGINT, *_ENDING), signal.SIG_IGN):
        yield


@contextmanager
def _handled(signals: tuple[signal.Signals, ...], handler: Any) -> Iterator[None]:  # noqa: ANN401 - as signal.signal takes it
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may say what a signal does; a program that calls us from another one does so itself.
        yield
        return
    # Put back afterwards, so that these can be used inside one another.
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

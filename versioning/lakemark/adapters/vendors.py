"""Whose exception it is: a vendor's package raised it, or our own code did and is wrong."""

from __future__ import annotations


def raised_in(error: BaseException, package: str) -> bool:
    """Whether `error` came out of `package` or of what that called.

    Vendors let AttributeError, KeyError, TypeError and ValueError pass where a server's answer is not what they expect. The
    same exceptions out of our own lines are mistakes of ours, and no advice about somebody's server mends those.
    """
    trace = error.__traceback__
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name == package or name.startswith(package + "."):
            return True
        trace = trace.tb_next
    return False

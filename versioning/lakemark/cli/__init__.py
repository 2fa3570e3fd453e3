"""The command line. `lakemark.cli:main` is the program; each command is loaded when it is called, and what it needs with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

__all__ = ["main", "run"]


def main() -> None:
    """The program `lakemark`: runs `sys.argv` and ends the process with the exit code."""
    try:
        # Imported in here: Ctrl-C while modules load must end in one line, too, not in a traceback.
        from lakemark.cli.streams import begin

        begin()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before there is a command that could say so
        sys.stderr.write("lakemark: interrupted\n")
        code = 130
    sys.exit(code)


def run(arguments: Sequence[str], *, environ: Mapping[str, str] = os.environ) -> int:
    """Runs one command line and answers its exit code. Data goes to stdout, everything else to stderr."""
    try:
        from lakemark.cli.running import execute
    except ModuleNotFoundError as error:
        # A module of our own that is missing is a fault of ours, and no matter of what was installed.
        if (error.name or "lakemark").partition(".")[0] == "lakemark":
            raise
        sys.stderr.write(
            f"lakemark: the command line needs {error.name}, which a plain installation leaves out\n"
            "  pip install 'lakemark[node]'\n"
        )
        return 2

    return execute(arguments, environ=environ)

"""What somebody types next, as lines that work when they are pasted where the program was started."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from shlex import quote

__all__ = ["command", "login", "shown"]


def command(config: Path, *words: str) -> str:
    """`lakemark …` for the site of `config`, with the program as it can be called from here."""
    return " ".join([_program(), "--config", quote(shown(config)), *map(quote, words)])


def login(url: str, directory: Path) -> list[str]:
    """Where Prefect's page is, and where its password: the page asks for it once."""
    return [
        f"Prefect's page: {url}",
        f"it asks for a password: the value of PREFECT_API_AUTH_STRING in {shown(directory / 'credentials.env')}",
    ]


def shown(path: Path) -> str:
    """Relative where it lies below the current directory: short, and right for as long as one stays there."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _program() -> str:
    mine = Path(sys.executable).with_name("lakemark")
    found = shutil.which("lakemark")
    # Another installation first on PATH would run other code on this site.
    if found is not None and Path(found).resolve() == mine.resolve():
        return "lakemark"
    return quote(shown(mine)) if mine.exists() else f"{quote(sys.executable)} -m lakemark.cli"

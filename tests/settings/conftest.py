"""Configurations from text, and what is wrong with others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark.errors import Misconfigured
from lakemark.settings import Loaded, loads

FILE = Path("/srv/lakemark/lakemark.yaml")
BASE = """\
site: lab
node: node-a
data: none
tiers: {hot: {class: hot, kind: tree, path: hot}, warm: {class: warm, kind: s3, url: s3://lakemark/warm}}
"""


@pytest.fixture
def configured() -> Callable[..., Loaded]:
    """A function from more lines and variables to the loaded configuration of a small site."""

    def load(more: str = "", *, text: str = BASE, **environ: str) -> Loaded:
        return loads(text + more, file=FILE, environ=environ, hostname="host-1")

    return load


@pytest.fixture
def refusal(configured) -> Callable[..., str]:
    """As `configured`, for what must be Misconfigured: the message, without the file's folder."""

    def load(more: str = "", *, text: str = BASE, **environ: str) -> str:
        with pytest.raises(Misconfigured) as caught:
            configured(more, text=text, **environ)
        assert caught.value.advice.endswith(".")
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(f"{FILE.parent}/", "")

    return load

"""Settings as the rules services go by."""

from pathlib import Path

import pytest

from lakemark.settings import loads, render
from lakemark.settings.rules import policies


@pytest.mark.parametrize(("apply", "when_full"), [("true", "thin"), ("false", "stop")])
def test_apply_false_lets_nothing_be_thinned(apply, when_full):
    text = render("solo", site="s", node="n", ports={}, ledger_url=None)
    text = text.replace("retention:\n", f"retention:\n  apply: {apply}\n")
    loaded = loads(text, file=Path("/site/lakemark.yaml"), environ={}, hostname="n")
    assert policies(loaded.settings).when_full == when_full

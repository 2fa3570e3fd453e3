"""`config show`, `config schema`."""

from __future__ import annotations

import json

from lakemark.cli.output import table
from lakemark.cli.session import Answer, session


def show() -> Answer:
    """Every value of the configuration with its source. Secrets are not among them."""
    loaded = session().parts.loaded
    values = [{"key": one.key, "value": one.value, "source": one.source} for one in loaded.shown()]
    rows = [(one["key"], json.dumps(one["value"], ensure_ascii=False), one["source"]) for one in values]
    document = {"file": str(loaded.file), "values": values}
    return Answer(document=document, lines=table(("key", "value", "from"), rows))


def schema() -> Answer:
    """JSON schema of lakemark.yaml, for editors and people."""
    from lakemark.settings import schema as of_settings

    document = of_settings()
    return Answer(document=document, lines=json.dumps(document, indent=2, ensure_ascii=False).splitlines())

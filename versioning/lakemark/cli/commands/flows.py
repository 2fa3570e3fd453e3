"""`flows export` and `flows deploy`: the deployments of the wheel, beside lakemark.yaml and on Prefect's server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from lakemark.cli.output import table
from lakemark.cli.prefect_api import PrefectApi
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Misconfigured, NotFound

if TYPE_CHECKING:
    from lakemark.sandbox.carried import Exported


def export(directory: Path | None = None, /, *, dry_run: bool = False) -> Answer:
    """Write prefect.yaml and its flows, which this installation carries; files that somebody edited stay as they are.

    Parameters
    ----------
    directory: Path
        Where; by default beside lakemark.yaml, or here where there is none.
    dry_run: bool
        Say what would be written, and change nothing.
    """
    from lakemark.sandbox import carried

    here = session()
    folder = directory.absolute() if directory else _home(here) or Path.cwd()
    if dry_run:
        return would(f"write {carried.FILE} and flows/ of {carried.carried()} to {folder}", path=str(folder))
    done = carried.export(folder)
    document = {
        "path": str(folder / carried.FILE),
        "written": list(done.written),
        "same": list(done.same),
        "edited": list(done.edited),
    }
    # Without a name `deploy` takes, or even exports, those beside lakemark.yaml.
    which = "" if directory is None else f" --file {quote(str(folder / carried.FILE))}"
    lines = [str(folder / carried.FILE), *_told(done), f"next: lakemark flows deploy{which}"]
    return Answer(document=document, lines=lines)


def deploy(*, file: Path | None = None, dry_run: bool = False) -> Answer:
    """Bring Prefect's deployments to what prefect.yaml says. Needs no lakemark.yaml where PREFECT_API_URL is set.

    Parameters
    ----------
    file: Path
        The prefect.yaml; by default the one beside lakemark.yaml, which is exported first where there is none.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.sandbox import carried
    from lakemark.sandbox.declared import FIRST, declared, in_order

    here = session()
    home = _home(here)
    # The sandbox's keys lie beside a configuration; without one only the environment can name a server.
    keys = here.environ if home is None else here.parts.keys
    api = PrefectApi.of(keys)
    if api is None:
        raise Misconfigured("PREFECT_API_URL is not set", advice="Set it, or have `prefect: server` in `sandbox:`.")
    if file is not None and not file.is_file():
        raise NotFound(f"there is no {file}", advice="`lakemark flows export` writes one.")
    folder = home or Path.cwd()
    if dry_run:
        return would(f"bring the deployments at {api.url} to what {file or folder / carried.FILE} says")
    if file is None:
        found, exported = carried.ensure(folder)
        for line in _told(exported) if exported else ():
            here.note(line)
    else:
        found = file.absolute()
    _deploy(here, found, keys, sandbox=home is not None and bool(here.settings.sandbox.prefect))
    for pool in {one.pool for one in declared(found) if one.pool}:
        queues = api.queues(pool)
        if not in_order(queues):
            # Prefect gives a new queue the lowest rank: a rollback would wait behind every scheduled sweep.
            api.put_first(pool, FIRST)
    rows = [
        {"name": str(one.get("name")), "id": str(one.get("id")), "paused": one.get("paused"), "tags": one.get("tags")}
        for one in api.deployments()
    ]
    return Answer(
        document={"deployments": rows}, lines=table(("deployment", "id"), [(row["name"], row["id"]) for row in rows])
    )


def _deploy(here: Session, found: Path, keys: Mapping[str, str], *, sandbox: bool) -> None:
    from lakemark.cli.commands.sandbox import plan_of
    from lakemark.sandbox import prefect, services

    if sandbox:
        services.deploy(plan_of(here, deployments=found), report=here.note)
    else:
        prefect.deploy(found, environment=keys, report=here.note)


def _home(here: Session) -> Path | None:
    """The folder of the configuration that applies; None where there is none at all. A named one must be there."""
    from lakemark.settings import find

    try:
        find(here.options.config, environ=here.environ, cwd=Path.cwd())
    except Misconfigured:
        # Who names a configuration means that one: to go on without it would deploy for another site.
        if here.options.config is not None or here.environ.get("LAKEMARK_CONFIG"):
            raise
        return None
    return here.parts.loaded.home


def _told(done: Exported) -> list[str]:
    lines = [f"wrote {name}" for name in done.written]
    return lines + [f"kept {name} as it is: somebody edited it" for name in done.edited]

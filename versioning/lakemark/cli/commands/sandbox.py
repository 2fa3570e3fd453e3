"""`up`, `down`, `demo`: the servers of the sandbox, and the story told with them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakemark.cli.output import plain, table
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Misconfigured, Refused, without_secrets

if TYPE_CHECKING:
    from lakemark.sandbox.plan import Plan


def up(*, dry_run: bool = False) -> Answer:
    """Start the servers that `sandbox:` names, on loopback, and claim the tiers of these servers.

    Safe to repeat: what runs is left alone.

    Parameters
    ----------
    dry_run: bool
        Say what would be started, and change nothing.
    """
    from lakemark.sandbox import services
    from lakemark.sandbox.stopping import interrupted_by_signals
    from lakemark.services.tiers.register import register_all

    here = session()
    wanted = plan_of(here)
    if dry_run:
        return would(*(f"start {name} at {url}, unless it runs" for name, url in _wanted(wanted)))
    # SIGTERM ends like Ctrl-C here: what was started by then is ended again.
    with interrupted_by_signals():
        running = services.up(with_flows(here, wanted), here.note)
    rows = [{"name": one.name, "url": one.url, "pid": one.pid} for one in running]
    if here.parts.settings.ledger.path.is_dir():
        # At `init` their server did not run, so they could not be claimed.
        theirs = [name for name, tier in here.settings.tiers.items() if tier.kind == "s3"]
        for name, outcome in register_all(here.site, only=theirs).items():
            if isinstance(outcome, Exception):
                here.warn(f"the tier {name}: {outcome}")
    lines = table(("service", "url", "pid"), [tuple(row.values()) for row in rows])
    return Answer(document={"services": rows}, lines=[*lines, "", *next_steps(here)])


def down(*, dry_run: bool = False) -> Answer:
    """End exactly what `up` started.

    Parameters
    ----------
    dry_run: bool
        Say what would be ended, and change nothing.
    """
    from lakemark.sandbox import services

    here = session()
    directory = here.settings.sandbox.dir
    if dry_run:
        return would(*(f"end {one.name} at {one.url}" for one in services.status(directory) if one.alive))
    here.note("ending servers; SeaweedFS takes up to half a minute")
    rows = [{"name": one.name, "url": one.url, "pid": one.pid} for one in services.down(directory)]
    lines = [f"ended {row['name']} ({row['url']})" for row in rows] or ["nothing was running"]
    return Answer(document={"services": rows}, lines=lines)


def demo(*, dir: Path | None = None, keep: bool = False, dry_run: bool = False) -> Answer:  # noqa: A002 - the option's name
    """Run the whole story on real services: train, commit, sink, roll back three days with the data, resume, compare.

    Parameters
    ----------
    dir: Path
        Where; by default `demo` in the current directory.
    keep: bool
        Leave the servers running.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    here = session()
    where = _unused(dir)
    if dry_run:
        return would(
            f"make a site in {where} with servers of its own", "train, commit, sink, roll back, resume, compare"
        )
    from lakemark.sandbox.stopping import interrupted_by_signals
    from lakemark.sandbox.story import demo as story

    with interrupted_by_signals():
        # A site of its own: nothing of the configuration that applies here is touched.
        report = story.run(where, say=here.note, environ=here.environ, keep=keep)
    failed = [one for one in report.get("checks", ()) if not one["ok"]]
    shown = [("ok" if one["ok"] else "FAILED", one["name"], one["detail"]) for one in report.get("checks", ())]
    return Answer(document={"report": report}, lines=table(("", "check", ""), shown), exit_code=4 if failed else 0)


def plan_of(here: Session, *, deployments: Path | None = None) -> Plan:
    """What the configuration says is to run. Raises Misconfigured where it names no server, or none on loopback."""
    from lakemark.sandbox import credentials, services
    from lakemark.settings import S3Tier, is_loopback

    settings = here.settings
    wanted = settings.sandbox
    if not (wanted.s3 or wanted.lakefs or wanted.prefect):
        raise Misconfigured("`sandbox:` names no server", advice="Only the profile laptop runs its own servers.")
    keys = credentials.read(wanted.dir / "credentials.env")
    # One S3 server serves all of the sandbox's tiers; it needs one port and one bucket.
    tiers = [tier for tier in settings.tiers.values() if isinstance(tier, S3Tier) and is_loopback(tier.endpoint)]
    s3 = services.S3(port=_port(tiers[0].endpoint), bucket=tiers[0].url.bucket) if wanted.s3 and tiers else None
    data = settings.data if wanted.lakefs else None
    lakefs = services.LakeFS(_port(data.endpoint), data.repository, data.branch) if data else None
    prefect = None
    if wanted.prefect:
        prefect = services.Prefect(home=here.parts.loaded.home, node=settings.node, deployments=deployments)
    return services.Plan(
        directory=wanted.dir, credentials=keys, environment=here.environ, s3=s3, lakefs=lakefs, prefect=prefect
    )


def with_flows(here: Session, plan: Plan) -> Plan:
    """The plan with the deployments that lie beside lakemark.yaml; where none lie there, they are exported first."""
    from lakemark.sandbox import carried

    if plan.prefect is None:
        return plan
    file, exported = carried.ensure(here.parts.loaded.home)
    anew = exported is not None and bool(exported.written)
    if exported is not None and anew:
        here.note(f"wrote {len(exported.written)} files of flows beside lakemark.yaml, in {exported.folder}")
    return replace(plan, prefect=replace(plan.prefect, deployments=file, anew=anew))


def next_steps(here: Session) -> list[str]:
    """Where the sandbox's Prefect is, its password, and how the servers are ended; nothing where the site runs none."""
    from lakemark.sandbox import directions

    wanted = here.settings.sandbox
    if not (wanted.s3 or wanted.lakefs or wanted.prefect):
        return []
    # It is shown on a terminal and may be copied from there.
    url = without_secrets(here.parts.keys.get("PREFECT_API_URL", ""))
    lines = directions.login(url.removesuffix("/api"), wanted.dir) if wanted.prefect and url else []
    return [*lines, f"to end the servers: {directions.command(here.parts.loaded.file, 'down')}"]


def _unused(wanted: Path | None) -> Path:
    """The folder asked for, which must be absent or empty; else the first of demo, demo-2, demo-3 … that is."""
    if wanted is not None:
        if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
            raise Refused(f"{wanted} is not empty", advice="Name a folder that is absent or empty.")
        return wanted.absolute()
    names = (Path("demo" if number == 1 else f"demo-{number}") for number in count(1))
    return next(name for name in names if not name.exists() or not any(name.iterdir())).absolute()


def _port(url: str | None) -> int:
    port = urlsplit(url or "").port
    if port is None:
        raise Misconfigured(f"{json.dumps(plain(url))} names no port", advice="The sandbox's servers need one each.")
    return port


def _wanted(wanted: Plan) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    if wanted.s3:
        rows.append(("seaweedfs", f"http://127.0.0.1:{wanted.s3.port}"))
    if wanted.lakefs:
        rows.append(("lakefs", f"http://127.0.0.1:{wanted.lakefs.port}"))
    if wanted.prefect:
        rows.append(("prefect-server and prefect-worker", wanted.credentials.get("PREFECT_API_URL")))
    return rows

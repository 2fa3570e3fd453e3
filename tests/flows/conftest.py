"""One Prefect for all tests of flows: what uses it is marked `xdist_group("prefect")`, so that one worker starts it."""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

# Read when prefect is imported: nobody's profile, nothing sent home, and no server that nobody asked for.
PREFECT_HOME = Path(tempfile.gettempdir()) / f"lakemark-tests-{os.getuid()}" / "prefect"
PREFECT_HOME.mkdir(parents=True, exist_ok=True)
os.environ |= {
    "PREFECT_HOME": str(PREFECT_HOME),
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
}

import pytest  # noqa: E402
from prefect.settings import (  # noqa: E402
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_RETRY_EXTRA_CODES,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_HOME as HOME,
    temporary_settings,
)

from lakemark.sandbox import credentials, loopback, services  # noqa: E402
from lakemark.sandbox.story.data_repository import DataRepository  # noqa: E402
from tests.flows.stage import NODE, Engine, Stage, new_site, register  # noqa: E402

ROOT = Path(__file__).parents[2]
KEPT = ("alembic_version", "configuration", "block_type", "block_schema", "block_schema_reference")


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """A site, the lakeFS stand-in, Prefect's server, and a worker with every deployment, schedules off."""
    home = tmp_path_factory.mktemp("site")
    prefect_port, lakefs_port = loopback.free_ports(2)
    keys = credentials.generate(home / "sandbox" / "credentials.env", prefect_port=prefect_port)
    clock = {"LAKEMARK_CLOCK": f"@{home / 'clock'}"}
    plan = services.Plan(
        home / "sandbox",
        keys,
        {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "LAKEMARK_"))},
        lakefs=services.LakeFS(lakefs_port, "data", "main"),
        prefect=services.Prefect(home, NODE, deployments=ROOT / "prefect.yaml", worker=clock),
    )
    new_site(home, lakefs_port)
    template = Path(tempfile.gettempdir()) / f"lakemark-tests-{os.getuid()}" / f"prefect-{version('prefect')}.sqlite"
    database = home / "sandbox" / "prefect" / "prefect.db"
    if template.exists():
        database.parent.mkdir()
        shutil.copy(template, database)
    try:
        services.up(plan, print)
        if not template.exists():
            take_template(database, template)
        environ = {**keys, **clock, "LAKEMARK_HOME": str(home), "LAKEMARK_NODE": NODE, "HOME": str(home)}
        repository = DataRepository.at(loopback.url(lakefs_port), "data", keys)
        made = Stage(home, plan, repository, environ)
        register(made)
        made.pause_schedules()
        yield made
    finally:
        services.down(home / "sandbox")


@pytest.fixture
def engine(stage, tmp_path, monkeypatch):
    """Flows that run in this process, on the stage's server and site, without the second that heartbeats cost."""
    for name, value in stage.environ.items():
        monkeypatch.setenv(name, value)
    keys = stage.plan.credentials
    with temporary_settings({
        HOME: tmp_path / "prefect",
        PREFECT_API_URL: keys["PREFECT_API_URL"],
        PREFECT_API_AUTH_STRING: keys["PREFECT_API_AUTH_STRING"],
        PREFECT_CLIENT_RETRY_EXTRA_CODES: "500",
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
    }):  # fmt: skip
        yield Engine(stage)


def take_template(database: Path, template: Path) -> None:
    """Keeps the migrated, emptied database: the next session's server starts in half the time."""
    half = template.with_suffix(f".{os.getpid()}")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(half)) as copy:
        source.backup(copy)
        tables = copy.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        for (table,) in tables.fetchall():
            if table not in KEPT:
                copy.execute(f"DELETE FROM {table}")
        copy.commit()
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.execute("VACUUM")
    half.replace(template)

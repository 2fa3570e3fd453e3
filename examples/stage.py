"""A site for the examples, and how its users act on it: by the command line, and by the data team's uploads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from lakemark.sandbox import credentials
from lakemark.sandbox.story.data_repository import DataRepository

PATIENCE_SECONDS: Final = 240.0
_LOOK_SECONDS: Final = 0.2
_LAKEMARK: Final = (sys.executable, "-c", "import sys; from lakemark.cli import main; sys.exit(main())")
_FOREIGN: Final = ("LAKEMARK_", "PREFECT_", "LAKEFS_", "AWS_")
_QUIET: Final = {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


class Broken(RuntimeError):
    """The story could not go on."""


@dataclass(slots=True)
class Site:
    """S3, a lakeFS stand-in and the node's service, for any number of runs."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict, repr=False)
    service: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def started(cls, home: Path) -> Iterator[Site]:
        """A new site in `home`, an empty or absent folder; its servers end with the block."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        environ |= _QUIET | {"LAKEMARK_HOME": str(home), "LAKEMARK_CONFIG": str(home / "lakemark.yaml")}
        environ["LAKEMARK_DATA_CACHE"] = str(home / "data-cache")
        site = cls(home, environ)
        home.mkdir(parents=True, exist_ok=True)
        site.lakemark("init", str(home), "--profile", "laptop")
        file = home / "lakemark.yaml"
        file.write_text(file.read_text().replace("  prefect: server\n", ""))
        try:
            site.lakemark("up")
            keys = credentials.read(home / "sandbox" / "credentials.env")
            environ |= {name: value for name, value in keys.items() if name.startswith("LAKEFS_")}
            site.watch()
            yield site
        finally:
            if site.service is not None:
                site.service.terminate()
                site.service.wait()
            site.lakemark("down")

    def lakemark(self, *words: str, by: str = "ana") -> dict[str, Any]:
        """One command, by one of the site's users; answers its JSON. Raises Broken where it fails."""
        environ = self.environ | {"LOGNAME": by}
        command = [*_LAKEMARK, *words, "--json"]
        done = subprocess.run(command, env=environ, cwd=self.home, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Broken(f"`lakemark {' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
        value = json.loads(done.stdout)
        return value if isinstance(value, dict) else {}

    def watch(self) -> None:
        """The node's service, as systemd starts it."""
        with (self.home / "watch.log").open("wb") as log:
            self.service = subprocess.Popen(
                [*_LAKEMARK, "watch", "--every", "2s"], env=self.environ, cwd=self.home, stdout=log, stderr=log
            )

    def repository(self) -> DataRepository:
        """The site's data, as those who write it have it."""
        settings = {row["key"]: row["value"] for row in self.lakemark("config", "show")["values"]}
        return DataRepository.at(settings["data.endpoint"], settings["data.repository"], self.environ)

    def records(self, run: str, *, everything: bool) -> list[dict[str, Any]]:
        """The run's records, the newest last: of its present lineage, or of all its timelines."""
        words = ["ls", run, "--limit", "1000", *(["--all-timelines"] if everything else [])]
        return list(reversed(self.lakemark(*words)["records"]))

    def settled(self, run: str, saved: Mapping[str, object]) -> list[dict[str, Any]]:
        """The records of the run's lineage, once the service has made one of each save. Raises Broken where it does not."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(records := self.records(run, everything=False)) < len(saved):
            if time.monotonic() > deadline:
                log = (self.home / "watch.log").read_text(errors="replace")
                raise Broken(f"{len(records)} of {len(saved)} saves of {run} were committed: {log[-3000:]}")
            time.sleep(_LOOK_SECONDS)
        return records


def rows(seed: int) -> bytes:
    """One edition of the data, as .npz: x of (256, 16) and y of (256,)."""
    random = np.random.Generator(np.random.PCG64(seed))
    x = random.normal(0, 1, (256, 16)).astype(np.float32)
    y = (np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]).astype(np.float32)
    buffer = BytesIO()
    np.savez(buffer, x=x, y=y)
    return buffer.getvalue()


def digests(path: Path) -> dict[str, str]:
    """Relative path -> sha256 of each file of a checkpoint, which may be one file."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    base = path.parent if path.is_file() else path
    return {str(file.relative_to(base)): sha256(file.read_bytes()).hexdigest() for file in files}

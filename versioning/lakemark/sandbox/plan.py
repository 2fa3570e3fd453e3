"""What to run on this machine, and what each of it may know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakemark.errors import Misconfigured
from lakemark.sandbox import loopback

__all__ = ["S3", "LakeFS", "Plan", "Prefect"]


@dataclass(frozen=True)
class S3:
    """SeaweedFS; `port` is that of the tier's endpoint. Port + 10000 must be free too."""

    port: int
    bucket: str


@dataclass(frozen=True)
class LakeFS:
    """The lakeFS stand-in; `repository` is made, with `branch`, where it is missing."""

    port: int
    repository: str
    branch: str


@dataclass(frozen=True)
class Prefect:
    """Prefect's server, on the port of the credentials' PREFECT_API_URL, and the worker of `node`.

    `home` becomes the worker's LAKEMARK_HOME. `deployments` is the prefect.yaml to deploy; the flows are
    imported from its folder. anew: they changed since the last `up`. `worker` is laid over the worker's environment last.
    """

    home: Path
    node: str
    deployments: Path | None = None
    worker: Mapping[str, str] = field(default_factory=dict)
    anew: bool = False


@dataclass(frozen=True)
class Plan:
    """What to run in `directory`; a service that is None is somebody else's.

    `credentials` are those of `credentials.generate`; `environment` is what the servers inherit,
    without its PREFECT_ variables.
    """

    directory: Path
    credentials: Mapping[str, str] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    s3: S3 | None = None
    lakefs: LakeFS | None = None
    prefect: Prefect | None = None

    def credential(self, name: str) -> str:
        """Raises `Misconfigured` where the credentials lack it."""
        try:
            return self.credentials[name]
        except KeyError:
            raise Misconfigured(
                f"the sandbox's credentials lack {name}",
                advice="Add it to credentials.env, or remove the file and run `lakemark init` again.",
            ) from None

    def inherited(self) -> dict[str, str]:
        """`environment` as every server gets it: no foreign Prefect, no proxy before loopback."""
        # A shell that works with another Prefect must not lead these servers to it.
        kept = {name: value for name, value in self.environment.items() if not name.startswith("PREFECT_")}
        given = kept.get("NO_PROXY") or kept.get("no_proxy")
        direct = ",".join(filter(None, (given, loopback.HOST, "localhost")))
        return kept | {"NO_PROXY": direct, "no_proxy": direct}

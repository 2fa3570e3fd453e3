"""A copy of another node's ledger that is only read: fetched with the git program, which never moves a branch back."""

from __future__ import annotations

import configparser
import os
import re
import select
import subprocess
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from lakemark.adapters.disk.files import fsync_directory, os_errors, remove_tree, rename_new, write_new
from lakemark.adapters.git.ledger import GitLedger, Remote
from lakemark.adapters.git.make import init
from lakemark.adapters.git.nodes import NODES
from lakemark.adapters.git.refs import tips
from lakemark.adapters.git.trees import git_errors, opened, read_blob
from lakemark.errors import Denied, Misconfigured, NotFound, Refused, StoreUnavailable, quoted, without_secrets
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import Draft, Stamp
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState, TierSeen
from lakemark.ports.ledger import Appended

# Branches without a plus: git then refuses a history that was replaced. Heartbeats are replaced all the time: with one.
_BRANCHES: Final = ("refs/heads/runs/*:refs/heads/runs/*", "refs/heads/site:refs/heads/site", f"+{NODES}*:{NODES}*")
# With --progress, which nobody reads: a fetch that says nothing for long is taken for dead.
_FETCH: Final = ("fetch", "--atomic", "--progress", "--no-tags", "--no-write-fetch-head")
# `ext::` addresses are command lines, which git would run.
_PATIENCE: Final = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30", "-c", "protocol.ext.allow=never")
# Nobody is there to answer a prompt: git and ssh must fail instead. In English: their words are matched below.
_QUIET: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=15",
    "LC_ALL": "C",
}
_RIGHTS: Final = (
    "dubious ownership",
    "Permission denied",
    "Authentication failed",
    "could not read Username",
    "returned error: 403",
)
# Lines that end in a carriage return alone are written over by the next one: only the last words are kept.
_PROGRESS: Final = re.compile(rb"[^\r\n]*\r(?!\n)")
_REWRITTEN: Final = ("non-fast-forward", "[rejected]")
_KEPT_BEGINS: Final = "# The ledger's address with its password; nobody else may read this file."
_KEPT: Final = re.compile(re.escape(_KEPT_BEGINS) + r'\n\[url "[^\n]*\n\tinsteadOf = [^\n]*\n')
_NOWHERE: Final = (
    "does not appear to be a git repository",
    "couldn't find remote ref",
    "repository not exported",
    "' not found",
    "is this a git repository?",
    "is not a git command",
    "no path specified",
    "strange pathname",
)


class ReadOnlyLedger(GitLedger):
    """`ports.Ledger` of a machine that only reads: whatever would append is Refused."""

    def append(self, run: str, decide: Callable[[RunState], Draft | None], stamp: Stamp) -> Appended[RunState]:  # noqa: ARG002 - the port's
        _refuse(f"the run {run}")

    def append_site(self, decide: Callable[[SiteState], Draft | None], stamp: Stamp) -> Appended[SiteState]:  # noqa: ARG002 - the port's
        _refuse("the site")

    def beat(self, node: str, change: Callable[[Heartbeat | None], Heartbeat]) -> Heartbeat:  # noqa: ARG002 - the port's
        _refuse(f"the heartbeat of {node}")


def refresh(path: Path, remote: str, *, patience_seconds: float = 120.0) -> None:
    """Brings every branch of the ledger at `remote` into the mirror at `path`, all of them or none.

    The mirror is made if need be; one that can't be filled is not. A password in `remote` is kept in the mirror's own
    configuration, which this user alone may read, and need not be given again. Raises Refused where the history was replaced,
    Denied, NotFound (no ledger there), StoreUnavailable (also where it says nothing for `patience_seconds`), Misconfigured
    (no git).
    """
    if path.exists():
        init(path)
        with os_errors(path):
            _keep_secret(path, remote)
        _fetch(path, without_secrets(remote), patience_seconds)
        return
    # Filled under another name: an empty mirror would look like a ledger without runs.
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with os_errors(path):
        try:
            init(draft)
            _keep_secret(draft, remote)
            _fetch(draft, without_secrets(remote), patience_seconds)
            with suppress(FileExistsError):  # another process made it meanwhile
                rename_new(draft, path)
            fsync_directory(path.parent)
        finally:
            remove_tree(draft)


def _keep_secret(path: Path, remote: str) -> None:
    """Has git fetch with the password although it is told the address without: every process can read a command line."""
    shown = without_secrets(remote)
    if shown == remote:
        return
    config = path / "config"
    before = _KEPT.sub("", config.read_text(encoding="utf-8"))
    given, asked = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (remote, shown))
    draft = config.with_name(f".config.{uuid.uuid4().hex}")
    text = f'{before}{_KEPT_BEGINS}\n[url "{given}"]\n\tinsteadOf = "{asked}"\n'
    # A new file, not a chmod of the old one: whoever has that open already would read the password.
    write_new(draft, text.encode(), mode=0o600)
    draft.rename(config)
    fsync_directory(path)


def _fetch(path: Path, remote: str, patience_seconds: float) -> None:
    """One `git fetch` of everything. Raises what `refresh` does."""
    # `--`: an address that begins with a dash must not be taken for an option.
    command = ["git", *_PATIENCE, "--git-dir", str(path), *_FETCH, "--", remote, *_BRANCHES]
    # What the user set himself stays: an ssh command with a key of his own, for one.
    environ = {**os.environ, **{name: os.environ.get(name, value) for name, value in _QUIET.items()}}
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, env=environ)
    except FileNotFoundError:
        raise Misconfigured("there is no program git here, which fetches the ledger", advice="Install git.") from None
    with process:
        try:
            said = _listened(process, patience_seconds)
        except BaseException:
            process.terminate()
            raise
    if said is None:
        raise StoreUnavailable(
            f"the ledger {quoted(remote)} has said nothing for {patience_seconds:.0f} seconds",
            advice="Try again; check the URL and the network.",
        )
    if process.returncode:
        _raise(remote, said)


def _listened(process: subprocess.Popen[bytes], patience_seconds: float) -> str | None:
    """What it wrote to its end, without progress; None, and it is told to end, where it fell silent."""
    stream, said = process.stderr, b""
    while stream is not None:
        if not select.select([stream], [], [], patience_seconds)[0]:
            process.terminate()
            return None
        if not (read := os.read(stream.fileno(), 1 << 16)):
            break
        said = _PROGRESS.sub(b"", said + read)
    return said.decode(errors="replace")


def refreshed(path: Path, remote: str) -> str | None:
    """`refresh`, or why it can't be done now where there is a mirror from before that must do."""
    before = path.is_dir() and bool(tips(path))
    try:
        refresh(path, remote)
    except (StoreUnavailable, NotFound, Denied) as error:
        if not before:
            raise
        return f"{error}; what follows is as of the last time it could"
    return None


def tiers(path: Path) -> dict[str, dict[str, str]]:
    """Tiers that the mirrored ledger knows and tells a clone how to reach: name -> keys of the configuration."""
    ledger = GitLedger(path)
    try:
        seen = ledger.site().tiers
        remotes: dict[str, Remote] = {}
        with git_errors(path):
            repository = opened(path)
            for tip in ledger.tips().values():
                data = read_blob(repository, tip, ".dvc/config")
                remotes |= {} if data is None else _remotes(data.decode(errors="replace"))
    finally:
        ledger.close()
    # Only tiers that the site has not retired: an old commit may name one that is long gone.
    known = {name: remote for name, remote in remotes.items() if name in seen and not seen[name].retired}
    return {name: _keys(seen[name], remote) for name, remote in known.items()}


def _keys(seen: TierSeen, remote: Remote) -> dict[str, str]:
    place = {"kind": "directory", "path": remote.url} if remote.directory else {"kind": "s3", "url": remote.url}
    more = {"endpoint": remote.endpoint, "region": remote.region, "domain": seen.domain}
    return {"class": seen.tier_class, **place, **{key: text for key, text in more.items() if text}}


def _remotes(text: str) -> dict[str, Remote]:
    """DVC's remotes by name, from the text of its configuration; none where that can't be read."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    found: dict[str, Remote] = {}
    for section in parser.sections():
        name = section.strip("'").removeprefix('remote "').removesuffix('"')
        values = {key: value.strip("\"'") for key, value in parser[section].items()}
        if section.startswith("'remote ") and "url" in values:
            found[name] = Remote(
                name=name,
                url=values["url"],
                endpoint=values.get("endpointurl"),
                region=values.get("region"),
                directory="://" not in values["url"],
            )
    return found


def _raise(remote: str, said: str) -> NoReturn:
    """Raises what git's words mean; words that are not known count as a server that can't be reached."""
    text = quoted(" ".join(said.split())[-400:])
    where = f"the ledger {quoted(remote)}"
    if any(word in said for word in _REWRITTEN):
        raise Refused(
            f"{where} is not the one that was read before, or its history was replaced: {text}",
            advice="Ask who keeps it. To read it all the same, remove this machine's mirror and begin anew.",
        )
    if any(word in said for word in _RIGHTS):
        raise Denied(f"{where} may not be read: {text}", advice="Give this user the right to read it.")
    if any(word in said for word in _NOWHERE):
        raise NotFound(f"there is no ledger at {quoted(remote)}: {text}", advice="Check the URL or path.")
    raise StoreUnavailable(f"{where} can't be fetched: {text}", advice="Try again; check the URL and the network.")


def _refuse(what: str) -> NoReturn:
    """Raises Refused: a mirror follows its ledger, and entries of its own would keep it from that."""
    raise Refused(
        f"this machine only reads: nothing is recorded of {what}", advice="Give the command on a node of the site."
    )

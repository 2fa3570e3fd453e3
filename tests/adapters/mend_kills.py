"""Kills the mending of a ledger's folder at its steps on the disk, and mends what is left. `mend_kills.py SORT FOLDER`."""

import shutil
import sys
from pathlib import Path

from kill_sweep import dies_at  # beside this file, which runs as a program
from ledger_writer import drafts

from lakemark.adapters.git import mend as git_mend, objects as git_objects
from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.git.make import init
from lakemark.model.ledger.entry import Draft, Stamp
from lakemark.model.values.instants import from_text

AT = from_text("2026-11-26T12:00:00Z")
ID = "0a1b2c3d-ledger-of-the-test"
RUN = "written"
JUNK = b"what lay there\n"


def made(path):
    """Entries of a run and of the site, all of them still beside the repository as well."""
    init(path, ID)
    ledger = GitLedger(path)
    for number in range(3):
        for verb, draft in drafts("node-a", number):
            ledger.append(
                RUN, lambda _, draft=draft: draft, Stamp(at=AT, node="n", actor="a@n", request=f"{verb}{number}")
            )
    body = {"tier": "cold", "id": "x", "class": "cold", "tier_kind": "directory", "domain": "d"}
    draft = Draft(kind="tier_registered", body=body)
    ledger.append_site(lambda _: draft, Stamp(at=AT, node="n", actor="a@n", request="tier"))
    tips = dict(ledger.tips())
    ledger.close()
    return tips


def all_at_once(path):
    """Settings, HEAD, a reference of another run, a line of packed-refs and every object of one entry."""
    (path / "config").write_text("[core\n")
    (path / "HEAD").write_bytes(b"\0" * 20)
    (path / "refs/heads/runs/other").write_bytes(b"\0" * 41)
    (path / "packed-refs").write_text("garbage\n")
    for oid in git_objects.kept(path, git_objects.names(path)[0]):
        place = path / "objects" / oid[:2] / oid[2:]
        place.chmod(0o644)
        place.write_bytes(b"")


def no_repository(path):
    shutil.rmtree(path)
    path.mkdir()
    (path / "note").write_bytes(JUNK)


def gone(path):
    shutil.rmtree(path)


SORTS = {"all at once": (all_at_once, 1), "no repository": (no_repository, 37), "gone": (gone, 53)}
"""With how far the deaths are from each other: an empty ledger is begun in some hundred equal steps."""


def main(sort, folder):
    tips = made(folder / "whole.git")
    site = folder / "ledger.git"

    def fresh():
        shutil.rmtree(site, ignore_errors=True)
        for left in folder.glob("ledger.git.damaged-*"):
            shutil.rmtree(left)
        shutil.copytree(folder / "whole.git", site)
        SORTS[sort][0](site)

    def judge(path, *, died):
        said = git_mend.mend(path, lambda: ID)
        assert died or said == [], said
        ledger = GitLedger(path)
        assert ledger.id == ID
        if sort == "all at once":
            assert dict(ledger.tips()) == tips
            assert ledger.is_whole()
            assert ledger.run(RUN).sequence == 6
            kept = path / "lakemark" / "damaged"
            assert (kept / "config").read_text() == "[core\n"
            assert (kept / "HEAD").read_bytes() == b"\0" * 20
            assert (kept / "refs-heads-runs-other").read_bytes() == b"\0" * 41
            assert (kept / "packed-refs").read_text() == "garbage\n"
        elif sort == "no repository":
            (beside,) = folder.glob("ledger.git.damaged-*")
            assert (beside / "note").read_bytes() == JUNK
        ledger.append(
            RUN, lambda _: Draft(kind="closed", timeline=1), Stamp(at=AT, node="n", actor="a@n", request="on")
        )
        ledger.close()
        assert git_mend.mend(path, lambda: None) == []

    step, deaths, died = 1, 0, True
    while died:
        fresh()
        died = dies_at(step, lambda: git_mend.mend(site, lambda: ID))
        judge(site, died=died)
        step, deaths = step + SORTS[sort][1], deaths + died
    return deaths


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2])))  # noqa: T201 - how many deaths were survived

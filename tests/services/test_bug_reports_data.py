"""What people reported of data servers: on the stand-in over HTTP, and on the server that LAKEFS_ENDPOINT names."""

import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from lakefs_client import models

from lakemark.adapters.lakefs.server import LakeFSServer
from lakemark.errors import Conflict, Refused, Usage
from lakemark.model.back.rollback_plan import Flags
from lakemark.model.ledger.entry import Draft
from lakemark.model.values.names import is_run, original, run_for
from lakemark.ports import Approval, Policies, Strength
from lakemark.services.back.move_branch import move_branches
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_apply import apply
from lakemark.services.back.rollback_request import Wish, request
from lakemark.services.data.note import keep_note, noted
from lakemark.services.data.observe import observe
from lakemark.services.data.tend import tend_data
from lakemark.services.health.invariants import sampled_data
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.register import register_all
from tests.faults.site_on_disk import make_site
from tests.services.on_disk import RUN, now, plain
from tests.services_fixtures import LAKEFS_SERVERS

pytestmark = pytest.mark.xdist_group("lakefs")

NAMES = ("gpt--val_loss=2.10-step=1000", "exp/7b.v2", "exp=7b.v2", "Llama:7B", "exp.7b.v2", "exp-7b.v2", "exp-7b-v2")
ALONE = Policies(quiet_seconds=0.0, approval=Approval(required=False))


@pytest.fixture(scope="module", params=LAKEFS_SERVERS)
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def scratch(server):
    return server.scratch()


@pytest.fixture
def site(yard, scratch):
    """A function that answers what a process of its own has of the site: only the disk and the server are shared."""

    def of_a_process():
        made = make_site(yard.home / "site", scratch.server.data(), now)
        default = {"default_repository": scratch.repository, "default_branch": "main"}
        return replace(made, simulated_clock=False, policies=ALONE, **default)

    register_all(of_a_process())
    return of_a_process


def at_once(*calls):
    """What each answers or raises, started in the same instant."""
    start, ended = threading.Barrier(len(calls)), [None] * len(calls)

    def work(place, call):
        start.wait()
        try:
            ended[place] = call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            ended[place] = error

    threads = [threading.Thread(target=work, args=one) for one in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def failed(ended):
    return [one for one in ended if isinstance(one, Exception)]


def saved(yard, site, run, step=1):
    """A checkpoint of `run`, committed; the same bytes whatever the run."""
    path = plain(yard.out / run, step)
    return commit(site, Commit(path=path, run=run, step=step)).record


# P07: names that a data server refuses


def test_a_run_of_any_name_gets_data_branches_that_the_server_takes(yard, site, scratch):
    branches = []
    for name in NAMES:
        run = run_for(name)
        assert (is_run(run), original(run)) == (True, name)
        here = site()
        opened = open_run(here, Opening(run=run, watch=yard.out / run))
        record = saved(yard, here, run)
        asked = request(here, Wish(run=run, record=record.id, reason="x", requester="ana@node-a", flags=STILL))
        ((repository, branch, commit_id),) = apply(here, asked.id).data
        assert (repository, commit_id) == (scratch.repository, opened.data[0].commit)
        assert scratch.data.head(repository, branch) == commit_id
        assert here.ledger.run(run).rollbacks[asked.id].plan["data"][0]["opens_branch"] == branch
        branches.append(branch)
    assert len(set(branches)) == len(NAMES)
    assert set(branches) <= set(scratch.branches())


STILL = Flags(while_running=True)


@pytest.mark.parametrize("name", ["gpt--val_loss=2.10-step=1000", "exp/7b.v2", "-x"])
def test_a_name_that_is_refused_is_told_the_rule(scratch, name):
    with pytest.raises(Usage) as told:
        scratch.data.branch_at(scratch.repository, name, scratch.data.head(scratch.repository, "main"))
    assert name in told.value.message
    assert "letters, digits, _ and -" in told.value.advice


def test_so_is_the_name_of_a_repository(site):
    with pytest.raises(Usage) as told:
        open_run(site(), Opening(run=RUN, data=("exp_7b.v2/main",)))
    assert "'exp_7b.v2'" in told.value.message
    assert "3 to 63 lower-case letters" in told.value.advice


# P08: several commits at once against one data branch


def test_commits_at_once_each_have_their_data(yard, site):
    opened = open_run(site(), Opening(run=RUN, watch=yard.out))
    paths = {step: plain(yard.out, step) for step in range(1, 9)}

    saves = [partial(commit, site(), Commit(path=paths[step], run=RUN, step=step)) for step in (*paths, 1, 2)]
    made = at_once(*saves)  # two of them twice
    assert failed(made) == []
    assert [entry.kind for entry, _ in site().ledger.entries(RUN)].count("committed") == 8
    assert {one.record.id for one in made} == set(yard.state().records) == yard.in_hot()
    assert sorted(found.record.step for found in yard.state().records.values()) == list(paths)
    assert {found.record.data[0].commit for found in yard.state().records.values()} == {opened.data[0].commit}
    assert all(found.record.bound for found in yard.state().records.values())


def test_runs_that_open_and_commit_while_others_write_the_branch(yard, site, scratch):
    """Of the others, one has something to commit and one has nothing."""

    def trains(run):
        here = site()

        def work():
            opened = open_run(here, Opening(run=run, watch=yard.out / run))
            return opened, saved(yard, here, run)

        return work

    others = (
        lambda: scratch.put("main", {"new": b"rows"}),
        lambda: scratch.put("main", {}, allow_empty=True),
    )
    *runs, _, _ = at_once(*(trains(f"run-{number}") for number in range(4)), *others)
    assert failed(runs) == []
    kept = Counter()
    for opened, record in runs:
        ((ref,), (pin,)) = opened.data, opened.pins
        assert [one.commit for one in record.data] == [ref.commit]
        assert (pin.commit, pin.strength) == (ref.commit, Strength.GUARDED)
        assert scratch.data.pin_strength(ref.repository, ref.commit, branch=pin.branch) is Strength.GUARDED
        assert scratch.data.readable(ref.repository, ref.commit, sample=8, seed=1).lost == ()
        kept[ref.commit, pin.branch] += 1
    assert kept.total() == 4
    assert len(kept) == len({commit for commit, _ in kept}), "one commit has two pins"
    assert {branch for branch in scratch.branches() if "pin-" in branch} == {branch for _, branch in kept}


def test_rollbacks_at_once_that_set_one_branch_back(yard, site, scratch):
    """All end with the branch's tree as it was, moved once from where every plan saw it; what was there is in its history."""
    old = scratch.data.head(scratch.repository, "main")
    records = {}
    for run in ("a", "b", "c", "d"):
        here = site()
        open_run(here, Opening(run=run, watch=yard.out / run))
        records[run] = saved(yard, here, run).id
    newer = scratch.put("main", {"train/0": b"poison"})
    asked = {}
    for run, record in records.items():
        flags = Flags(while_running=True, move_branch=True)
        wish = Wish(run=run, record=record, reason=f"{run} diverged", requester="ana@node-a", flags=flags)
        asked[run] = request(site(), wish)
    assert failed(at_once(*(partial(apply, site(), one.id) for one in asked.values()))) == []
    assert scratch.data.head(scratch.repository, "main") == newer
    moves = (partial(move_branches, site(), one.id, digest=one.digest) for one in asked.values())
    for error in failed(at_once(*moves)):
        assert isinstance(error, Conflict)
    for run, one in asked.items():
        move_branches(site(), one.id, digest=one.digest)
        assert site().ledger.run(run).rollbacks[one.id].moves
    head = scratch.data.head(scratch.repository, "main")
    same = scratch.data.diff(scratch.repository, old, head)
    assert (same.added, same.removed, same.changed) == (0, 0, 0)
    ancestors = []
    while head != old:
        ancestors.append(head)
        head = scratch.data.resolve(scratch.repository, head).parents[0]
    assert newer in ancestors


def other_repository(server, site, run):
    """A run on a repository of its own; answers both."""
    place = server.scratch()
    return place, open_run(site(), Opening(run=run, data=(f"{place.repository}/main",)))


def look(site):
    """What a pass over data versions could not do, by what it names."""
    return dict(tend_data(site()).failed)


@pytest.mark.parametrize("jobs", [["J1"] * 8, [f"J{number}" for number in range(8)]], ids=["one job", "jobs"])
def test_many_openings_of_one_run_while_its_branch_moves(site, scratch, jobs):
    moves = threading.Event()

    def moving():
        for number in range(200):
            if moves.is_set():
                return
            scratch.put("main", {"rows": b"%d" % number})

    background = threading.Thread(target=moving)
    background.start()
    try:
        opened = at_once(*(partial(open_run, site(), Opening(run="new", job=job)) for job in jobs))
    finally:
        moves.set()
        background.join()
    assert failed(opened) == []
    assert len({one.data[0].commit for one in opened}) == 1
    assert {one.pins[0].commit for one in opened} == {opened[0].data[0].commit}
    assert [entry.kind for entry, _ in site().ledger.entries("new")].count("opened") == 1
    tend_data(site())
    states = {(pin.commit, pin.state) for pin in site().ledger.site().pins.values()}
    assert (opened[0].data[0].commit, "pinned") in states


def test_each_pin_is_mended_whatever_became_of_the_others(server, site, scratch):
    here = site()
    gone, _ = other_repository(server, site, "on-gone")
    merged, on_merged = other_repository(server, site, "on-merged")
    lost, on_lost = other_repository(server, site, "on-lost")
    ruled, on_ruled = other_repository(server, site, "on-ruled")
    gone.client.repositories_api.delete_repository(gone.repository)
    merged.make_branch("side", merged.branches()["main"])
    merged.put("side", {"x": b"1"})
    merged.client.refs_api.merge_into_branch(merged.repository, "side", on_merged.pins[0].branch)
    (pin,) = [one for one in here.ledger.site().pins.values() if one.repository == lost.repository]
    lost.data.unpin(lost.repository, pin.commit, branch=pin.branch, nonce=pin.nonce, reason="by hand")
    ruled.client.repositories_api.set_branch_protection_rules(ruled.repository, [])
    wrong = look(site)
    assert {what for what in wrong if gone.repository in what} == set(wrong) != set()
    for place, opened in ((merged, on_merged), (lost, on_lost), (ruled, on_ruled)):
        commit = opened.data[0].commit
        kept = site().ledger.site().pin_of(place.repository, commit)
        assert place.data.pin_strength(place.repository, commit, branch=kept.branch) is Strength.GUARDED
    assert open_run(site(), Opening(run="on-lost", job="2")).data == on_lost.data


def test_branches_of_two_repositories_are_moved_together_or_not_at_all(yard, server, site, scratch):
    other = server.scratch()
    here = site()
    asked = Opening(run="two", data=(f"{scratch.repository}/main", f"{other.repository}/main"), watch=yard.out / "two")
    open_run(here, asked)
    record = saved(yard, here, "two")
    newer = [place.put("main", {"train/0": b"poison"}) for place in (scratch, other)]
    flags = Flags(while_running=True, move_branch=True)
    wish = Wish(run="two", record=record.id, reason="it diverged", requester="ana@node-a", flags=flags)
    standing = request(here, wish)
    apply(site(), standing.id)
    assert [place.branches()["main"] for place in (scratch, other)] == newer
    other.stage("main", "unsaved", b"work")
    with pytest.raises(Refused, match="uncommitted"):
        move_branches(site(), standing.id, digest=standing.digest)
    assert [place.branches()["main"] for place in (scratch, other)] == newer
    other.client.branches_api.reset_branch(other.repository, "main", models.ResetCreation(type="reset"))
    done = move_branches(site(), standing.id, digest=standing.digest)
    assert [place.branches()["main"] for place in (scratch, other)] == [one.made for one in done.moves]


def test_tags_and_commits_are_left_alone_and_a_branch_is_gone_when_the_list_says_so(site, scratch):
    head = scratch.branches()["main"]
    scratch.make_tag("v1.0", head)
    scratch.make_branch("short-lived", head)
    for run, ref in (("on-tag", "v1.0"), ("on-commit", head), ("on-branch", "short-lived")):
        open_run(site(), Opening(run=run, data=(f"{scratch.repository}/{ref}",)))
    assert observe(site()).said == [f"{scratch.repository}/short-lived is at {head[:12]}"]
    assert scratch.data.delete_branch(scratch.repository, "short-lived", only_at=head)
    assert observe(site()).said == [f"{scratch.repository}/short-lived is gone"]


def test_of_many_lost_objects_a_sample_tells_and_all_of_them_are_found_by_reading_all(yard, site, scratch):
    commit_id = scratch.put("main", {f"part-{number:02}": b"%d" % number for number in range(37)})
    here = site()
    open_run(here, Opening(run="many", watch=yard.out / "many"))
    saved(yard, here, "many")
    lost = [f"part-{number:02}" for number in range(32)]
    if not all(scratch.collect(commit_id, path) for path in lost):
        pytest.skip("where this server keeps bytes is not known")
    records = list(here.ledger.run("many").records.values())
    told = sampled_data(here, records, sample=8)
    assert told.lost
    assert str(told.sampled[0]["sampled"]).startswith("8 of 40 objects, seed ")
    assert sampled_data(here, records, sample=None).lost[0]["paths"] == lost


def test_a_repository_that_was_made_anew_is_told(server, site, scratch):
    place, opened = other_repository(server, site, "anew")
    place.client.repositories_api.delete_repository(place.repository)
    namespace = f"{server.namespaces}{place.repository}-again"
    wanted = models.RepositoryCreation(name=place.repository, storage_namespace=namespace, default_branch="main")
    while place.status(place.client.repositories_api.create_repository, wanted) == 409:
        time.sleep(0.1)  # a server forgets a repository some seconds after it was deleted
    place.put("main", {"train/0": b"new"})
    assert any(opened.data[0].commit[:12] in what + str(error) for what, error in look(site).items())
    with pytest.raises(Refused, match="is gone") as refused:
        open_run(site(), Opening(run="anew", job="2"))
    assert "lakemark run open anew --repin" in refused.value.advice
    with pytest.raises(Refused, match="is gone"):
        resume(site(), "anew", to=site().home / "out")
    again = open_run(site(), Opening(run="anew", repin=True))
    assert again.data[0].commit == place.branches()["main"]


def test_a_pass_asks_as_much_for_three_hundred_pins_as_for_one(site, scratch, monkeypatch):
    """One listing shows where all of them stand. A guard is read once for the head that it stands at."""
    here, asked = site(), []
    real = LakeFSServer.ask
    monkeypatch.setattr(LakeFSServer, "ask", lambda *given, **named: asked.append(1) or real(*given, **named))

    def requests():
        asked.clear()
        assert tend_data(site()).failed == []
        return len(asked)

    opened = open_run(site(), Opening(run="run-0"))
    requests()
    one = requests()
    note = noted(site())
    proven, head = dict(note.proven), note.proven[opened.pins[0].branch]
    (nonce,) = {pin.nonce for pin in site().ledger.site().pins.values()}
    for number in range(1, 300):
        # Made by hand, at a guard that stands already: making one costs ten requests, and is not what is counted here.
        branch = f"pin-{number:012x}-{number:04x}"
        scratch.make_branch(branch, head, hidden=True)
        body = {"repository": scratch.repository, "commit": opened.pins[0].commit, "pin": branch, "nonce": nonce}
        draft = Draft(kind="pinned", body=body | {"run": "run-0"})
        here.ledger.append_site(lambda _, draft=draft: draft, here.stamp(f"by hand:{branch}"))
        proven[branch] = head
    keep_note(site(), [], proven=proven, before=note)
    assert len([pin for pin in site().ledger.site().pins.values() if pin.state == "pinned"]) == 300
    assert requests() <= one + 1
    assert one <= 10

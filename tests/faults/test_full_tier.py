"""A tier that refuses writes is passed by and can be emptied: real adapters, warm on a store that fails as asked."""

from contextlib import suppress

import pytest

from lakemark.adapters.git.pointer import Remote
from lakemark.errors import NoRoom
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from tests.faults.site_on_disk import Clock, make_site, write_checkpoint
from tests.support import s3_faults as faults

pytestmark = pytest.mark.xdist_group("seaweedfs")
RUN = "llama"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def site(seaweedfs, s3_faults, tmp_path, clock):
    blobs = s3_faults.before(seaweedfs).blobs(tmp_path / "uploads")
    remote = Remote(name="warm", url=blobs.where, endpoint=s3_faults.endpoint, region="us-east-1")
    made = make_site(tmp_path / "home", None, clock, s3=(blobs, remote))
    sweep(made)
    (tmp_path / "home" / "out").mkdir()
    open_run(made, Opening(run=RUN, data=[], watch=tmp_path / "home" / "out"))
    return made


def save(site, clock, step):
    clock.pass_(hours=1)
    path = write_checkpoint(site.home / "out" / f"step-{step}", f"weights of {step}")
    return commit(site, Commit(path=path, run=RUN, step=step)).record.id


def tiers_of(site, record):
    return {place.tier for place, replica in site.ledger.run(RUN).records[record].replicas.items() if replica.sound}


@pytest.mark.parametrize(
    "fault", [faults.quota("ceph"), faults.quota("seaweedfs-readonly"), faults.status(503, "SlowDown", Retry_After="0")]
)
def test_cold_gets_what_warm_refuses(site, s3_faults, clock, fault):
    s3_faults.on(fault, operation="PutObject", times=None)
    record = save(site, clock, 100)
    swept = sweep(site)
    assert tiers_of(site, record) == {"hot", "cold"}
    assert any("to warm" in one.what for one in swept.pending)
    s3_faults.clear()
    sweep(site)
    assert tiers_of(site, record) == {"hot", "warm", "cold"}


def test_full_is_said_as_full(site, s3_faults, clock):
    record = save(site, clock, 100)
    s3_faults.on(faults.quota("minio"), operation="PutObject", times=None)
    with pytest.raises(NoRoom) as error:
        replicate(site, RUN, record, to="warm")
    assert error.value.exit_code == 7


def test_one_tier_that_takes_nothing_costs_a_pass_its_time_once(site, s3_faults, clock, tmp_path):
    out = tmp_path / "home" / "out2"
    out.mkdir()
    open_run(site, Opening(run="other", data=[], watch=out))
    save(site, clock, 100)
    commit(site, Commit(path=write_checkpoint(out / "step-1", "other"), run="other", step=1))
    s3_faults.on(faults.quota("ceph"), operation="PutObject", times=None)
    sweep(site)
    refused = [number for number, what in s3_faults.happened if what == "quota of ceph"]
    claims = [one for one in s3_faults.asked(operation="PutObject", key="*records*") if one.number in refused]
    assert len(claims) == 1


def test_a_full_tier_can_be_emptied(site, s3_faults, clock):
    """Every write beyond what lies there is refused, also of notes: what is let go makes the room for them."""
    s3_faults.on(quota := faults.Quota(10**9), times=None)
    records = [save(site, clock, step) for step in (100, 200)]
    sweep(site)
    clock.pass_(hours=3)
    quota.limit_bytes = sum(quota.sizes.values())
    release(site, RUN, records[0], tier="warm")
    assert "warm" not in tiers_of(site, records[0])
    before = len([key for key in quota.sizes if "/files/" in key])
    for _ in range(3):
        clock.pass_(hours=100)
        with suppress(NoRoom):
            sweep(site)
    assert len([key for key in quota.sizes if "/files/" in key]) < before
    assert tiers_of(site, records[1]) >= {"warm", "cold"}

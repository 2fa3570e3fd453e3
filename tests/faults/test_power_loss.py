"""An acknowledged commit survives the loss of power, at whatever moment after it; what was not acknowledged is not half there.

Whatever opens the site does so in a child process: a disk with open files can't be taken away and given back.
"""

import os
import traceback

import pytest

from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.replicate import replicate
from tests.faults.site_on_disk import Clock, Steps, broken_promises, make_site, write_checkpoint
from tests.support.power_loss import disk

RUN = "llama"
MOST_STEPS = 12
CLOCK = Clock()


class CutAt(Steps):
    """Takes the power at a named step instead of killing the process."""

    def __init__(self, number, power):
        super().__init__()
        self._number, self._power = number, power

    def step(self, name):
        self.seen.append(name)
        if len(self.seen) == self._number:
            self._power.cut()
            os._exit(0)


def in_a_child(work):
    """Runs `work(tell)` in a fork; answers the lines it told before it ended, its traceback among them."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)

        def tell(text):
            os.write(writer, f"{text}\n".encode())

        try:
            work(tell)
        except BaseException:  # noqa: BLE001 - told, and seen by the test
            tell(traceback.format_exc())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        told = stream.read().decode().splitlines()
    os.waitpid(child, 0)
    return told


def prepared(home, out):
    """A site with step 100 committed and step 200 saved, all of it on the medium; answers the record's id."""

    def work(tell):
        site = make_site(home, None, CLOCK)
        sweep(site)
        open_run(site, Opening(run=RUN, watch=out))
        write_checkpoint(out / "step-100", "weights of 100 ")
        tell(commit(site, Commit(path=out / "step-100", run=RUN, step=100)).record.id)
        write_checkpoint(out / "step-200", "weights of 200 ")
        os.sync()

    (record,) = in_a_child(work)
    return record


def broken_after(home, acknowledged):
    """What is wrong once the power is back: before and after a sweep, and what a second sweep still does."""

    def work(tell):
        site = make_site(home, None, CLOCK)
        sweep(site)
        for line in broken_promises(site, acknowledged):
            tell(line)
        for line in sweep(make_site(home, None, CLOCK)).said:
            tell(f"a second sweep: {line}")

    return in_a_child(work)


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
@pytest.mark.parametrize("landing", ["same file system", "another"])
def test_an_acknowledged_commit_survives(tmp_path, require_root, require_command, file_system, landing):
    """Landed by link where the trainer saves on the same disk, by copy where it does not."""
    acknowledged_at = []
    for number in range(1, MOST_STEPS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with disk(folder, file_system, require_command) as power:
            home = power.path / "site"
            out = (power.path if landing == "same file system" else folder) / "out"
            first = prepared(home, out)

            def work(tell, number=number, power=power, out=out, home=home):
                site = make_site(home, None, CLOCK, progress=CutAt(number, power))
                tell(commit(site, Commit(path=out / "step-200", run=RUN, step=200)).record.id)
                power.cut()

            told = in_a_child(work)
            assert all(len(line) == 64 for line in told), told
            power.revive()
            assert broken_after(home, {first, *told}) == [], f"{file_system}, power lost at step {number}"
        if told:
            acknowledged_at.append(number)
            break
    assert acknowledged_at, "the commit was never acknowledged"
    assert acknowledged_at[0] >= 5, "it has too few named steps before it"


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_a_recorded_replica_survives(tmp_path, require_root, require_command, file_system):
    with disk(tmp_path, file_system, require_command) as power:
        home = power.path / "site"
        first = prepared(home, power.path / "out")

        def work(tell):
            replicate(make_site(home, None, CLOCK), RUN, first, to="cold")
            tell("replicated")
            power.cut()

        assert in_a_child(work) == ["replicated"]
        power.revive()
        tiers = in_a_child(
            lambda tell: tell([p.tier for p in make_site(home, None, CLOCK).ledger.run(RUN).records[first].replicas])
        )
        assert tiers == ["['hot', 'cold']"]
        assert broken_after(home, {first}) == []

"""Which life of a run is current: held against what really happened, known to a plain account of who saved what when."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import given, strategies as st

from lakemark.model.checkpoints.record import record_for
from lakemark.model.entries.fold import apply
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.ledger.run import RunState
from lakemark.model.runs.lives import newest_of_lives, other_lives
from lakemark.model.runs.placing import Save, place
from lakemark.model.runs.timeline import lineage
from tests.model.histories import RUN, START, manifest, settle, stamp

A_SAVE = timedelta(minutes=10)


@dataclass
class Account:
    """A directory and its ledger. life: which process wrote what; nobody tells the ledger."""

    state: RunState = field(default_factory=lambda: RunState(run=RUN))
    now: object = START
    contents: int = 0
    found: dict = field(default_factory=dict)
    bound: int = 1
    attempt: int = 1

    def __post_init__(self):
        self.add(Draft(kind="opened", timeline=1))
        self.add(Draft(kind="attempt", timeline=1, body={"attempt": "a1"}))

    def add(self, draft):
        number = self.state.sequence + 1
        apply(self.state, *settle(draft, number, replace(stamp(number, number), at=self.now)))

    def write(self, step, life):
        """A save: all its files are new."""
        self.now += A_SAVE
        self.contents += 1
        return step, life, self.now, self.contents

    def pass_over(self, writes, *, order=None):
        """Takes what a pass finds, in order of steps or another."""
        self.now += timedelta(minutes=1)
        began = self.state.sequence
        # Of several that wrote one step between two passes only the last is there.
        last = {step: (step, life, at, content) for step, life, at, content in writes}
        for step, life, at, content in sorted(last.values()) if order is None else [last[step] for step in order]:
            self.take(step, life, at, content, began=began)

    def take(self, step, life, at, content, *, began):
        save = Save(
            step=step,
            content=manifest(content).content,
            found=True,
            attempt=f"a{self.attempt}",
            directory_timeline=self.bound,
            newest_mtime=at,
            oldest_mtime=at,
            pass_began=began,
        )
        placed = place(self.state, save)
        if placed.fork is not None:
            body = {"attempt": f"a{self.attempt}", "fork": placed.fork.as_json(), "inferred": True}
            self.add(Draft(kind="resumed", timeline=placed.timeline, body=body, reason=placed.why))
            self.bound = placed.timeline
            placed = place(self.state, replace(save, placed=placed.timeline))
        record = record_for(manifest(content), run=RUN, timeline=placed.timeline, step=step, saved_at=at, node="node-a")
        record = replace(record, attempt=f"a{self.attempt}", parent=placed.parent)
        body = {"conflicts_with": placed.conflicts, "attempt": record.attempt}
        self.add(Draft(kind="committed", timeline=placed.timeline, contents=Attachments(record=record), body=body))
        self.found[record.id] = life

    def resume(self, number):
        """Somebody says that the run goes on from the newest of this timeline, as `resume --record` does."""
        state = self.state
        chosen = newest_of_lives(state)[number].record
        doubted = {one.number for one in state.in_doubt}
        timeline, fork = (number, None) if number in {state.timeline, *doubted} else (state.next_timeline, True)
        if fork:
            fork = {"timeline": chosen.timeline, "step": chosen.step, "record": chosen.id}
        self.attempt += 1
        body = {"attempt": f"a{self.attempt}", "fork": fork, "inferred": False}
        self.add(Draft(kind="resumed", timeline=timeline, body=body, record=chosen.id))
        self.bound = timeline

    def told(self):
        """(step, life) of the current lineage, newest first."""
        return [(one.record.step, self.found[one.record.id]) for one in lineage(self.state)]


def groups(draw, writes):
    """Writes as passes find them, each once."""
    passes, left = [], list(writes)
    while left:
        count = draw(st.integers(1, len(left)))
        passes.append(left[:count])
        left = left[count:]
    return passes


@given(st.data())
def test_it_is_never_another_than_what_really_went_on(data):
    """Rounds of training, of loops that write old steps anew, of processes that go back by themselves, and of decisions."""
    draw, account, life, steps = data.draw, Account(), 1, []
    every = draw(st.integers(1, 3))
    at = 0
    for _ in range(draw(st.integers(1, 3))):
        at = train(draw, account, life, steps, at=at, every=every)
        if len(steps) > 1 and draw(st.booleans()):
            convert(draw, account, steps, life=life)
            at = train(draw, account, life, steps, at=at, every=every)
        assert account.told() == [(step, who) for step, who in reversed(steps)]
        # A loop that nobody decided on, and a process that goes back after it, look the same: somebody decides between.
        account.resume(account.state.timeline)
        life, at, every = go_back(draw, account, steps, life=life)


def train(draw, account, life, steps, *, at, every):
    writes = []
    for _ in range(draw(st.integers(2, 4))):
        at += every
        writes.append(account.write(at, life))
        steps.append((at, life))
    for found in groups(draw, writes):
        account.pass_over(found)
        assert account.told()[0] == (max(step for step, *_ in found), life)
    return at


def convert(draw, account, steps, *, life):
    """Old steps are written anew while the newest stands: whatever is found, the run is where it was."""
    old = [step for step, _ in steps[:-1]]
    chosen = draw(st.lists(st.sampled_from(old), unique=True, min_size=1))
    before = account.told()
    for found in groups(draw, [account.write(step, "loop") for step in chosen]):
        account.pass_over(found, order=draw(st.permutations(sorted({step for step, *_ in found}))))
        assert account.told() == before
    own = [step for step, *_ in account.state.by_step.get(account.bound, ())]
    every = steps[-1][0] - steps[-2][0]
    gap = steps[-1][0] + every - own[-1]
    # Where the trainer's next step would be that loop's next, too, nobody could tell them apart: somebody says it.
    if gap == own[-1] - own[-2] if len(own) > 1 else gap <= 2 * every:
        account.resume(account.state.timeline)


def go_back(draw, account, steps, *, life):
    """A process begins again below, by itself: it is current once it has gone on, or somebody says so."""
    theirs, before = {step for step, _ in steps}, account.told()
    newest, start = steps[-1][0], draw(st.sampled_from([0, *(step for step, _ in steps[:-1])]))
    pace = steps[-1][0] - steps[-2][0]
    # One whose first save is later than all there is, or whose second is the other's next one, looks like the other.
    paces = [every for every in (1, 2, 3) if start + every <= newest and start + 2 * every != newest + pace]
    if not paces:
        return life, newest, pace
    every, mine, at = draw(st.sampled_from(paces)), [], start
    new = life + 1
    # From which step it went on is seen by its first save alone: the nearest below that.
    base = [(step, who) for step, who in steps if step < start + every]
    writes = []
    for _ in range(draw(st.integers(1, 6))):
        at += every
        writes.append(account.write(at, new))
    current = False
    for found in groups(draw, writes):
        below = sorted(step for step, *_ in found)
        account.pass_over(found, order=draw(st.permutations(below)) if below[-1] <= newest else None)
        mine += below
        alone = [step for step in mine if step not in theirs]
        current = len(alone) > 1 or mine[-1] > newest
        now = [*base, *((step, new) for step in mine)]
        assert account.told() == ([*reversed(now)] if current else before)
    state = account.state
    assert state.timelines[max(state.timelines)].inferred
    lives = [state.timeline, *other_lives(state)]
    assert len(lives) == 2
    # Whoever is asked may say either.
    mine_too = draw(st.booleans())
    account.resume(lives[0] if mine_too == current else lives[1])
    assert other_lives(account.state) == ()
    if mine_too:
        steps[:] = now
        return new, now[-1][0], every
    assert account.told() == before
    return life, newest, pace

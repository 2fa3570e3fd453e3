"""Passes, people and trainers of several nodes in drawn orders of what they ask of the world."""

from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest

from lakemark.errors import LakemarkError
from tests.services.interleaved import Alone, same_story
from tests.services.interleaved_scene import Scene

STEPS = 500
"""Calls of ports in one scene, after which all that was acknowledged is brought back."""


def told(seed, steps=STEPS):
    with same_story(Random(seed)):
        scene = Scene(seed)
        try:
            scene.play(steps)
            scene.judge()
        except BaseException as error:
            error.add_note(f"seed {seed}, of its story:\n" + "\n".join(scene.yard.turns.story[-200:]))
            raise
    return scene


def test_what_was_acknowledged_can_be_restored_by_somebody():
    assert sum(len(told(seed).yard.acknowledged) for seed in range(10)) > 10


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(1000, 1200, 20))
def test_a_hundred_thousand_steps(first):
    for seed in range(first, first + 20):
        told(seed)


class GoesBack(Alone):
    """A process under which, before its call number `at`, yesterday's ledger is put in the place of today's."""

    def __init__(self, yard, at):
        self.yard, self.left = yard, at

    def ask(self, call, what=""):
        if self.yard.held.depth == 0:
            self.left -= 1
            if self.left == 0:
                self.yard.ledger = self.yard.own(self.yard.backups[-1])
        return call()

    request = ask


@pytest.mark.parametrize("deed", ["commit", "sweep", "release", "copy", "verify", "bring_back", "resume", "roll_back"])
def test_a_ledger_that_goes_back_under_a_command_costs_nothing(deed):
    """It says so, or ends as if it had come before: it does not break down in its middle."""
    at, left = 0, 0
    while left <= 0:
        at += 1 + at // 2
        with same_story(Random(1)):
            scene = Scene(1)
            node, yard = scene.yard.nodes[0], scene.yard
            for saved in range(3):
                scene.save(node, None)
                yard.turns.now += timedelta(hours=2)
                scene.sweep(node, node.site())
                if saved == 1:
                    scene.back_up(node, None)
            scene.save(node, None)
            process = GoesBack(yard, at)
            with suppress(LakemarkError):
                getattr(scene, deed)(node, node.site(process))
            yard.require_nothing_lost()
            left = process.left
            scene.judge(passes=1)

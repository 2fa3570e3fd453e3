"""A full hot drops last copies only where that gives room back, on this machine's disk."""

import shutil
from dataclasses import replace

from lakemark.adapters.tree import TreeStore
from lakemark.model.retention import RetentionPolicy
from lakemark.services.sweep import sweep
from tests.services.on_disk import hf


def test_what_the_trainer_still_holds_is_not_dropped_for_room(yard):
    yard.open()
    for step in (10, 20):
        hf(yard.out, step)
    yard.sweep()
    site = yard.site()
    hot = TreeStore(yard.home / "site" / "hot", name="hot", node="node-a", min_free=2**62)
    policies = replace(site.policies, retention={"default": RetentionPolicy(keep_last=1)}, min_keep=1, residence={})
    full = replace(site, hot=hot, tiers={"hot": hot}, policies=policies)
    first = yard.at(10).record.id
    sealed = hot.path(hot.load(first))
    assert {file.stat().st_nlink for file in sealed.iterdir()} == {2}
    assert sweep(full, find=False).thinned == []
    assert sealed.is_dir()
    shutil.rmtree(yard.out / "checkpoint-10")
    assert sweep(full, find=False).thinned == [first]
    assert not sealed.exists()

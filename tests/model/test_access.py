"""Who can read what lies in a place: its own mode, as far as its parents let anybody get there."""

import stat

import pytest

from lakemark.model.tiers.access import Reach, Rights, for_group, is_shared, readers


def folder(mode, *, owner="keeper", group="team", path="/x"):
    return Rights(path=path, mode=stat.S_IFDIR | mode, owner=owner, group=group)


OPEN = folder(0o755, owner="root", group="root", path="/")


@pytest.mark.parametrize(
    ("mode", "reach"),
    [
        (0o700, Reach.OWNER),
        (0o2770, Reach.GROUP),
        (0o750, Reach.GROUP),
        (0o710, Reach.GROUP),
        (0o755, Reach.ALL),
        (0o711, Reach.ALL),
        (0o704, Reach.ALL),
        (0o705, Reach.ALL),
    ],
)
def test_by_its_own_mode_where_the_way_is_open(mode, reach):
    assert readers([OPEN, folder(mode)]).reach is reach
    assert readers([OPEN, folder(mode)]).kept_out is None


@pytest.mark.parametrize(
    ("parent", "reach"),
    [
        (folder(0o700), Reach.OWNER),
        (folder(0o750), Reach.GROUP),
        (folder(0o740), Reach.OWNER),
        (folder(0o750, group="others"), Reach.OWNER),
        (folder(0o701), Reach.ALL),
        (folder(0o771), Reach.ALL),
    ],
)
def test_a_parent_keeps_others_out(parent, reach):
    found = readers([OPEN, parent, folder(0o755)])
    assert found.reach is reach
    assert found.kept_out == (None if reach is Reach.ALL else parent)


def test_the_narrowest_parent_is_the_one_that_counts():
    narrow, narrower = folder(0o750, path="/a"), folder(0o700, path="/a/b")
    assert readers([OPEN, narrow, narrower, folder(0o755)]).kept_out == narrower
    assert readers([OPEN, narrower, narrow, folder(0o755)]).kept_out == narrower


def test_a_parent_that_keeps_out_nobody_who_might_come_is_not_named():
    assert readers([OPEN, folder(0o750), folder(0o700)]).kept_out is None


@pytest.mark.parametrize(("mode", "shared"), [(0o2770, True), (0o2775, True), (0o770, False), (0o2750, False)])
def test_a_shared_folder(mode, shared):
    assert is_shared(stat.S_IFDIR | mode) is shared


@pytest.mark.parametrize(("mode", "wanted"), [(0o644, 0o664), (0o600, 0o660), (0o400, 0o440), (0o755, 0o775)])
def test_the_group_gets_what_the_owner_has(mode, wanted):
    assert for_group(stat.S_IFREG | mode) == wanted
    assert for_group(stat.S_IFDIR | mode) == wanted | stat.S_ISGID

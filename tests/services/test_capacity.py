"""Asking for room reads no marker twice."""

import os

from lakemark.adapters.hot.store import TreeStore
from tests.services.on_disk import now, plain


def test_each_marker_is_read_once_however_often_room_is_asked_for(yard, monkeypatch):
    yard.open()
    for step in range(1, 9):
        yard.commit(plain(yard.out, step), step)
    hot = TreeStore(yard.home / "site" / "hot", name="hot", node="node-a", min_free=0, capacity_bytes=2**20)
    opened, plainly = [], os.open

    def counted(path, *args, **named):
        opened.append(str(path))
        return plainly(path, *args, **named)

    monkeypatch.setattr("os.open", counted)
    asked = [hot.full() for _ in range(20)]
    markers = [path for path in opened if "/sealed/" in path]
    assert not any(asked)
    assert len(markers) == len(set(markers)) == 8
    used = hot.usage().used_bytes
    dropped = hot.load(hot.records().records[0])
    hot.drop(dropped, now=now())
    assert hot.usage().used_bytes == used - dropped.record.size_bytes
    assert len(hot.records().records) == 7

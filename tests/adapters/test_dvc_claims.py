"""Which names are in use, asked in any order while more are added."""

import hashlib

from lakemark.adapters.dvc.claims import Used


def name(number):
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


def packed(*numbers):
    return b"".join(bytes.fromhex(name(number)[:16]) for number in numbers)


def test_what_was_added_is_there_and_nothing_else():
    used = Used()
    for start in range(0, 4000, 1000):
        used.add([name(number) for number in range(start, start + 1000)] + [name(start)])
        assert all(name(number) in used for number in range(start + 1000))
        assert not any(name(number) in used for number in range(start + 1000, start + 1500))
    assert used.has_any(packed(9000, 9001, 5))
    assert not used.has_any(packed(9000, 9001))
    assert not used.has_any(b"")


def test_an_empty_one_has_none():
    assert name(1) not in Used()

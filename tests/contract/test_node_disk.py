"""The guarantees of the ports of a node's own disk, on this machine's."""

import pytest

from lakemark.adapters.disk.digests import Digester
from lakemark.adapters.node.files import LocalFiles
from lakemark.adapters.node.notes import LocalNotes
from lakemark.adapters.node.pointers import LocalPointers
from lakemark.adapters.node.restorer import LocalRestorer
from lakemark.adapters.node.run_files import LocalSpool
from lakemark.contract import Broken
from lakemark.ports import Restored
from tests.support.contract import node_disk, node_disk_parts
from tests.support.contract.node_disk import Scratch

CHECKS = (*node_disk.CHECKS, *node_disk_parts.CHECKS)


def digests(content, part_size_bytes):
    digester = Digester(part_size_bytes)
    digester.update(memoryview(content))
    found = digester.finish()
    return found.digest, found.parts


def scratch(root, files=LocalFiles, restorer=LocalRestorer, pointers=LocalPointers, spool=LocalSpool, notes=LocalNotes):
    ports = {"files": files(), "restorer": restorer(), "pointers": pointers(), "spool": spool(), "notes": notes()}
    return Scratch(root=root, digests=digests, **ports)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_guarantee(tmp_path, check):
    check.run(scratch(tmp_path))


class TrustingRestorer(LocalRestorer):
    """Takes any bytes and any target, and says that all is well."""

    def restore(self, target, manifest, fetch, *, tag, progress):
        target.mkdir(parents=True, exist_ok=True)
        for file in manifest.regular:
            (target / file.path).parent.mkdir(parents=True, exist_ok=True)
            _, opened = next(iter(fetch(file)))
            (target / file.path).write_bytes(opened.read())

    def matches(self, path, manifest, *, progress):
        return path.exists()

    def move_aside(self, paths, into):
        return tuple(into / path.name for path in paths)

    def restore_parts(self, target, manifest, sparse, *, fetch, tag, progress):
        self.restore(target, manifest, fetch, tag=tag, progress=progress)
        sparse.wanted(target)
        return Restored(path=target, size_bytes=manifest.size_bytes, files_by_place={})

    def tidy(self, path):
        for inside in path.iterdir():
            inside.unlink()


class TrustingPointers(LocalPointers):
    def points(self, pointer):
        return True


class TrustingFiles(LocalFiles):
    def regular(self, path, members=()):
        return super().regular(members[0] if members else path)


class TrustingSpool(LocalSpool):
    def spooled(self, spool):
        return iter(())

    def read_run_file(self, path):
        return None


class TrustingNotes(LocalNotes):
    def save(self, path, value):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_check_can_fail(tmp_path, check):
    trusting = scratch(tmp_path, TrustingFiles, TrustingRestorer, TrustingPointers, TrustingSpool, TrustingNotes)
    with pytest.raises((Broken, OSError, StopIteration, AttributeError)):
        check.run(trusting)


def test_names_are_distinct():
    assert len({check.name for check in CHECKS}) == len(CHECKS)

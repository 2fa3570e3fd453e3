"""The guarantees of a workspace, on this machine's disk."""

import pytest

from lakemark.adapters.disk.digests import Digester
from lakemark.adapters.node.workspace import LocalWorkspace
from lakemark.contract import Broken
from lakemark.ports import Restored
from tests.support.contract import workspace, workspace_parts
from tests.support.contract.workspace import Scratch

CHECKS = (*workspace.CHECKS, *workspace_parts.CHECKS)


def digests(content, part_size_bytes):
    digester = Digester(part_size_bytes)
    digester.update(memoryview(content))
    found = digester.finish()
    return found.digest, found.parts


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_guarantee(tmp_path, check):
    check.run(Scratch(workspace=LocalWorkspace(), root=tmp_path, digests=digests))


class Trusting(LocalWorkspace):
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

    def points(self, pointer):
        return True

    def files(self, path, members=()):
        return super().files(members[0] if members else path)

    def tidy(self, path):
        for inside in path.iterdir():
            inside.unlink()

    def spooled(self, spool):
        return iter(())

    def read_run_file(self, path):
        return None

    def save_json(self, path, value):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_check_can_fail(tmp_path, check):
    with pytest.raises((Broken, OSError, StopIteration, AttributeError)):
        check.run(Scratch(workspace=Trusting(), root=tmp_path, digests=digests))


def test_names_are_distinct():
    assert len({check.name for check in CHECKS}) == len(CHECKS)

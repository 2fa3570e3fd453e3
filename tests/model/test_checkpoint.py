import copy
from dataclasses import replace

import pytest

from lakemark.errors import Corrupt, Refused
from lakemark.model.checkpoints.manifest import File, FileType, Manifest, check_path, check_target
from tests.model.building import check_golden

D1, D2, D3 = "1" * 64, "2" * 64, "a" * 64


def whole():
    return Manifest(
        files=(
            File(path="z/empty", type=FileType.DIRECTORY),
            File(path="best", type=FileType.SYMLINK, target="a/w.npz"),
            File(path="a/w.npz", size_bytes=70_000_000, digest=D1, parts=(D2, D3), role="weights"),
            File(path="run.sh", size_bytes=3, digest=D2, executable=True),
        )
    ).judged(framework="generic", roles=["x-new", "other", "weights"], resumable=None, gaps=["no rng"])


def test_golden():
    check_golden("manifest.json", {"content": whole().content, "manifest": whole().as_json()})


def test_round_trip_keeps_unknown_fields():
    value = copy.deepcopy(whole().as_json())
    value["from_the_future"] = {"a": 1}
    value["files"][0]["from_the_future"] = [1]
    again = Manifest.from_json(value)
    assert again.as_json() == value
    assert again.content == whole().content


def test_order_of_files_does_not_matter():
    assert Manifest(files=whole().files[::-1]).content == whole().content


@pytest.mark.parametrize(
    "change", [{"path": "b"}, {"size_bytes": 4}, {"executable": False}, {"digest": D3}, {"type": FileType.DIRECTORY}]
)
def test_content_is_of_paths_types_sizes_bits_and_digests(change):
    file = File(path="run.sh", size_bytes=3, digest=D2, executable=True)
    assert Manifest(files=(file,)).content != Manifest(files=(replace(file, **change),)).content


def test_roles_and_judgement_are_not_content():
    file = File(path="a", size_bytes=1, digest=D1)
    other = File(path="a", size_bytes=1, digest=D1, role="weights")
    assert Manifest(files=(file,)).content == Manifest(files=(other,)).content


@pytest.mark.parametrize(
    "path",
    ["../evil", "/etc/passwd", "a/../../b", "a/./b", "a//b", "a/", "", ".", "a\0b", "\udcff", "a/.git/x", ".dvc", "a/.dvcignore",
     "x" * 256, "/".join(["d" * 200] * 30)],
)  # fmt: skip
def test_paths_refused(path):
    with pytest.raises(Refused):
        check_path(path)


@pytest.mark.parametrize("path", ["a", "a b/ü", "-rf", "--help", "a\\b", ".metadata", "x" * 255, "a\nb", ".gitkeep"])
def test_paths_allowed(path):
    check_path(path)
    assert (
        Manifest.from_json(Manifest(files=(File(path=path, size_bytes=1, digest=D1),)).as_json()).files[0].path == path
    )


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("a", "/etc/shadow"),
        ("a", ".."),
        ("a/b", "../../c"),
        ("a", ""),
        ("a", None),
        ("a/b", "x/../../../y"),
        ("a", "b\0"),
    ],
)
def test_links_that_lead_outside(path, target):
    with pytest.raises(Refused):
        check_target(path, target)


@pytest.mark.parametrize(("path", "target"), [("a", "b"), ("a/b", "../c"), ("a/b/c", "../../d/e"), ("last", "last")])
def test_links_that_stay_inside(path, target):
    check_target(path, target)
    link = File(path=path, type=FileType.SYMLINK, target=target)
    assert Manifest.from_json(Manifest(files=(link,)).as_json()).files == (link,)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value.pop("files"),
        lambda value: value.update(format="lakemark.manifest/99"),
        lambda value: value.update(part_size_bytes="64"),
        lambda value: value["files"].append(dict(value["files"][0])),
        lambda value: value["files"].append({"path": "z/empty/x", "digest": D1}),
        lambda value: value["files"][0].update(path="../evil"),
        lambda value: value["files"][0].update(size_bytes=-1),
        lambda value: value["files"][0].update(size_bytes="3"),
        lambda value: value["files"][0].update(size_bytes=3.5),
        lambda value: value["files"][0].update(size_bytes=True),
        lambda value: value["files"][0].update(digest=D1.replace("1", "A")),
        lambda value: value["files"][0].update(digest=D1[1:]),
        lambda value: value["files"][0].update(digest="md5:" + D1),
        lambda value: value["files"][0].update(type="socket"),
        lambda value: value["files"][1].update(target="/etc"),
        lambda value: value.update(files="abc"),
        lambda value: value.update(roles=[1]),
    ],
    ids=range(17),
)
def test_damaged_manifests_are_corrupt(spoil):
    value = copy.deepcopy(whole().as_json())
    spoil(value)
    with pytest.raises(Corrupt) as raised:
        Manifest.from_json(value)
    assert "\n" not in str(raised.value)


def test_file_and_directory_of_one_name():
    with pytest.raises(Refused):
        Manifest(files=(File(path="a", size_bytes=1, digest=D1), File(path="a/b", size_bytes=1, digest=D1)))

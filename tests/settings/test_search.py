"""Which file is the configuration."""

import os
from pathlib import Path

import pytest

from lakemark.errors import Denied, Misconfigured
from lakemark.settings import lakefs_credentials, load
from lakemark.settings.search import find, read

TEXT = "site: {site}\ndata: none\ntiers: {{hot: {{class: hot, kind: tree, path: hot}}}}\n"


@pytest.fixture
def places(tmp_path) -> dict[str, Path]:
    """A configuration in every place, each with a site of that place's name."""
    folders = {
        "explicit": tmp_path / "explicit",
        "variable": tmp_path / "variable",
        "upwards": tmp_path / "project",
        "home": tmp_path / "home",
        "user": tmp_path / "xdg" / "lakemark",
        "system": tmp_path / "etc",
    }
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        (folder / "lakemark.yaml").write_text(TEXT.format(site=name))
    (folders["upwards"] / "a" / "b").mkdir(parents=True)
    return {name: folder / "lakemark.yaml" for name, folder in folders.items()}


def test_the_order(places, tmp_path):
    environ = {
        "LAKEMARK_CONFIG": str(places["variable"]),
        "LAKEMARK_HOME": str(places["home"].parent),
        "XDG_CONFIG_HOME": str(tmp_path / "xdg"),
    }
    inside = places["upwards"].parent / "a" / "b"
    explicit: Path | None = places["explicit"]
    found = []
    for forget in ("explicit", "LAKEMARK_CONFIG", "upwards", "LAKEMARK_HOME", "XDG_CONFIG_HOME", "system"):
        loaded = load(explicit, environ=environ, cwd=inside, hostname="h", system=places["system"].parent)
        found.append(loaded.settings.site)
        assert loaded.file == places[loaded.settings.site]
        if forget == "explicit":
            explicit = None
        elif forget in {"upwards", "system"}:
            places[forget].unlink()
        else:
            del environ[forget]
    assert found == ["explicit", "variable", "upwards", "home", "user", "system"]
    with pytest.raises(Misconfigured, match=r"found no lakemark.yaml in .*/b or above it") as caught:
        load(environ=environ, cwd=inside, hostname="h", system=places["system"].parent)
    assert "lakemark init" in caught.value.advice


def test_home_is_the_user_folder_without_xdg(places, tmp_path):
    folder = tmp_path / ".config" / "lakemark"
    folder.mkdir(parents=True)
    (folder / "lakemark.yaml").write_text(TEXT.format(site="dot"))
    places["upwards"].unlink()
    found = find(None, environ={"HOME": str(tmp_path)}, cwd=places["upwards"].parent, system=tmp_path / "none")
    assert found == folder / "lakemark.yaml"


def test_the_nearest_upwards_wins(places):
    inner = places["upwards"].parent / "a" / "lakemark.yaml"
    inner.write_text(TEXT.format(site="inner"))
    assert find(None, environ={}, cwd=inner.parent / "b") == inner


def test_paths_count_from_the_file(places):
    loaded = load(places["explicit"], environ={}, cwd=Path("/"), hostname="h")
    assert loaded.home == places["explicit"].parent
    assert loaded.settings.tiers["hot"].path == loaded.home / "hot"
    assert loaded.settings.ledger.path == loaded.home / "ledger.git"


def test_relative_and_folder_arguments(places, tmp_path):
    assert find(Path("explicit/lakemark.yaml"), environ={}, cwd=tmp_path) == places["explicit"]
    assert find(Path("explicit"), environ={}, cwd=tmp_path) == places["explicit"]
    assert find(None, environ={"LAKEMARK_CONFIG": "variable"}, cwd=tmp_path) == places["variable"]
    assert (
        find(None, environ={"LAKEMARK_HOME": "home", "LAKEMARK_CONFIG": ""}, cwd=tmp_path, system=tmp_path)
        == places["home"]
    )


def test_a_named_file_must_exist(places, tmp_path):
    for explicit, environ in [(Path("gone.yaml"), {}), (None, {"LAKEMARK_CONFIG": "gone.yaml"}), (Path("xdg"), {})]:
        with pytest.raises(Misconfigured, match="does not exist"):
            find(explicit, environ=environ, cwd=places["upwards"].parent.parent)


def test_another_users_file_upwards_is_not_trusted(places, require_root):
    os.chown(places["upwards"], 12345, 12345)
    with pytest.raises(Denied, match="belongs to another user") as caught:
        find(None, environ={}, cwd=places["upwards"].parent / "a")
    assert caught.value.exit_code == 8
    assert find(places["upwards"], environ={}, cwd=Path("/")) == places["upwards"]


def test_files_that_are_no_configuration(tmp_path):
    (tmp_path / "binary").write_bytes(b"site: a\nnode: \xff\n")
    with pytest.raises(Misconfigured, match="binary:2 is not UTF-8 text"):
        read(tmp_path / "binary")
    with pytest.raises(Misconfigured, match="cannot be read: Is a directory"):
        read(tmp_path)
    with pytest.raises(Misconfigured, match="is not a regular file"):
        read(Path("/dev/null"))
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    with pytest.raises(Misconfigured, match="cannot be read: No such file"):
        read(tmp_path / "dangling")


@pytest.fixture
def nobody():
    """Without the right to everything that root has."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def forbidden(tmp_path) -> Path:
    file = tmp_path / "forbidden"
    file.write_text(TEXT.format(site="a"))
    file.chmod(0)
    return file


def test_no_right_to_read_is_denied(forbidden, nobody):
    with pytest.raises(Denied, match="may not be read by this user"):
        read(forbidden)
    with pytest.raises(Denied, match="may not be read by this user") as caught:
        lakefs_credentials({"LAKEFS_ACCESS_KEY_ID": "A", "LAKEFS_SECRET_ACCESS_KEY_FILE": str(forbidden)})
    assert caught.value.exit_code == 8


def test_a_huge_file_is_not_read_whole(tmp_path):
    with (tmp_path / "huge").open("wb") as stream:
        stream.truncate(1 << 40)
    assert len(read(tmp_path / "huge")) == (1 << 20) + 1

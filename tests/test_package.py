"""The package as a whole: what importing it costs, and that its map is right."""

import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

import lakemark

VENDORS = (
    "blake3",
    "boto3",
    "botocore",
    "dvc",
    "lakefs_client",
    "numpy",
    "prefect",
    "pyarrow",
    "pydantic",
    "pygit2",
)


def test_every_public_name_loads():
    for name in lakemark.__all__:
        assert getattr(lakemark, name).__name__ == name
    assert len(lakemark.__all__) > 9


def test_public_names_are_sorted_and_listed():
    assert lakemark.__all__ == sorted(lakemark._HOMES)
    assert set(lakemark.__all__) <= set(dir(lakemark))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lakemark.nothing  # noqa: B018 - the access is the test


def test_import_loads_no_vendor():
    code = f"import lakemark, sys; print([v for v in {VENDORS!r} if v in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_wheel_carries_the_deployments(tmp_path):
    """Whoever has only the wheel gets the flows and prefect.yaml, just as the checkout has them."""
    root = Path(__file__).parents[1]
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if name.startswith("lakemark/carried/")}
    wanted = [root / "prefect.yaml", *(root / "flows").glob("*.py")]
    assert found == {f"lakemark/carried/{path.relative_to(root)}": path.read_bytes() for path in wanted}


def test_base_has_no_dependencies():
    assert [line for line in requires("lakemark") or [] if "extra ==" not in line] == []

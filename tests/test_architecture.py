"""The rules of docs/architecture.md that import-linter cannot say: who owns a vendor, and how large things get."""

import ast
import sys
from collections import Counter
from pathlib import Path
from statistics import quantiles

import grimp
import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("versioning", "flows") for path in (ROOT / folder).rglob("*.py"))

# A vendor has one place below `lakemark.adapters`: a module, or a folder of its own. urllib3 is below
# two vendors, and neither translates all of its errors.
ADAPTERS = {
    "blake3": "disk.digests",
    "boto3": "s3",
    "botocore": "s3",
    "dvc": "dvc",
    "lakefs_client": "lakefs",
    "pyarrow": "arrow",
    "pygit2": "git",
    "types_boto3_s3": "s3",
    "urllib3": ("lakefs", "s3"),
    "watchfiles": "node.hints",
}
# The edges' frameworks, by room.
ROOMS = {
    "backports": ["lakemark.formats.readers.zstd"],
    "compression": ["lakemark.formats.readers.zstd"],
    "cyclopts": ["lakemark.cli"],
    "fastapi": ["lakemark.web"],
    "fsspec": ["lakemark.data"],
    "jinja2": ["lakemark.web"],
    "lupa": ["lakemark.sandbox"],
    "python_multipart": ["lakemark.sandbox"],
    "numpy": ["lakemark.sandbox"],
    "prefect": ["flows"],
    "pydantic": ["flows", "lakemark.settings", "lakemark.web"],
    "pydantic_core": ["flows"],
    "pydantic_settings": ["lakemark.settings"],
    "pygraphviz": ["lakemark.web"],
    "rich": ["lakemark.cli"],
    "starlette": ["lakemark.sandbox", "lakemark.web"],
    "torch": ["lakemark.trainer.dcp"],
    "transformers": ["lakemark.trainer.hf"],
    "uvicorn": ["lakemark.cli", "lakemark.sandbox", "lakemark.web"],
    "yaml": ["lakemark.sandbox.declared", "lakemark.sandbox.lakefs", "lakemark.settings"],
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("lakemark", "flows", include_external_packages=True, cache_dir=None)


def importers(graph, vendor):
    return graph.find_modules_that_directly_import(vendor) if vendor in graph.modules else set()


def inside(module, room):
    return module == room or module.startswith(f"{room}.")


@pytest.mark.parametrize("vendor", ADAPTERS)
def test_a_vendor_has_one_adapter(graph, vendor):
    named = ADAPTERS[vendor]
    homes = [f"lakemark.adapters.{name}" for name in ((named,) if isinstance(named, str) else named)]
    strays = [
        at for at in importers(graph, vendor) if not any(at == home or at.startswith(f"{home}.") for home in homes)
    ]
    assert strays == [], f"{vendor} is imported outside {homes}"


@pytest.mark.parametrize("vendor", ROOMS)
def test_a_framework_stays_in_its_rooms(graph, vendor):
    strays = [at for at in importers(graph, vendor) if not any(inside(at, room) for room in ROOMS[vendor])]
    assert strays == []


def test_every_vendor_is_listed_here(graph):
    known = set(ADAPTERS) | set(ROOMS)
    roots = {name for name in graph.modules if graph.is_module_squashed(name)}
    assert roots - known - sys.stdlib_module_names == set()


def test_no_folder_has_more_than_20_modules():
    counts = Counter(path.parent for path in SOURCES if path.name not in ("__init__.py", "__main__.py"))
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > 20} == {}


def test_no_module_is_above_600_lines():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in lengths.items() if lines > 600} == {}


def test_functions_stay_readable():
    lengths = [
        node.end_lineno - node.body[0].end_lineno if ast.get_docstring(node) else node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert quantiles(lengths, n=100)[98] <= 55


def ports():
    """Port -> the methods it adds, and the ports it adds up."""
    for path in (ROOT / "versioning/lakemark/ports").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            bases = [base.id for base in getattr(node, "bases", []) if isinstance(base, ast.Name)]
            if "Protocol" in bases:
                yield node.name, [one.name for one in node.body if isinstance(one, ast.FunctionDef)], bases[:-1]


def test_ports_are_small():
    found = {name: (methods, added) for name, methods, added in ports()}
    assert len(found) > 30
    assert {name: len(methods) for name, (methods, _) in found.items() if len(methods) > 11} == {}
    # What is several ports in one adapter has nothing of its own to be asked for, or callers would take it for that.
    several = {name: methods for name, (methods, added) in found.items() if len(added) > 1}
    assert several == {
        "CheckpointStore": [],
        "HotStore": [],
        "Ledger": [],
        "DataVersions": ["patient"],
        "Journal": ["marks"],
    }

"""`docs/destructive.md` names everything that takes something away, and the tests it names are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "destructive.md"
PACKAGE = ROOT / "versioning" / "lakemark"
ROOMS = ("adapters", "services", "index", "data", "trainer", "cli")

# Of the system, of files' own helpers, of vendors.
CALLS = {
    *("unlink", "rmdir", "rmtree", "rename", "ftruncate", "truncate", "remove_tree", "rename_new", "exchange"),
    *("delete", "delete_object", "delete_objects", "abort_multipart_upload", "delete_branch", "drop_branch"),
}
PORTS = {
    "Named": "",
    "TierPlace": "",
    "Replicas": "put drop",
    "Garbage": "collect",
    "LedgerCopy": "keep_ledger",
    "Landings": "adopt discard clean",
    "SealedTrees": "unshare",
    "Files": "",
    "Restorer": "restore restore_parts move_aside tidy",
    "Pointers": "draft swap",
    "Spool": "write_run_file unspool spooled",
    "Notes": "save",
    "Marks": "forget",
    "KnownFiles": "confirm forget_files",
    "BoundDirectories": "bind_directory",
    "SeenTips": "forget_seen",
    "Journal": "",
    "LedgerReader": "",
    "LedgerWriter": "beat",
    "LedgerExchange": "take forward",
    "LedgerMending": "put_manifest set_aside",
    "EntryCache": "forget",
    "DataCommits": "",
    "DataPins": "unpin",
    "DataBranches": "delete_branch move_branch",
    "DataVersions": "",
}
HARMLESS = {
    "Named": "name place",
    "TierPlace": "tier_class kind domain identity claim usage free_space_bytes expires clock",
    "Replicas": "holds open verify claimed records load",
    "Garbage": "due strangers",
    "LedgerCopy": "open_ledger ledger_slots",
    "Landings": "land naming settled full",
    "SealedTrees": "changed path note_recorded recorded",
    "Files": "exists resolved regular identities is_gone require_keepable last_change survey same digest",
    "Restorer": "matches alone",
    "Pointers": "points",
    "Spool": "read_run_file announcing with_reads not_to_take",
    "Notes": "load",
    "Marks": "set get",
    "KnownFiles": "remember known kept twins all_known doubtful unseen_files note_digest digest",
    "BoundDirectories": "directory",
    "SeenTips": "saw seen",
    "Journal": "marks",
    "LedgerReader": "id tips tip runs run outline site entries manifest objects revision",
    "LedgerWriter": "append append_site heartbeats",
    "LedgerExchange": "contains heads_of needs_of reads_whole bundle beyond",
    "LedgerMending": "is_whole broken broken_branches",
    "EntryCache": "tip rows extend",
    "DataCommits": "resolve readable diff list read altered",
    "DataPins": "pin pin_strength pins_seen",
    "DataBranches": "head branches head_at branch_at movable",
    "DataVersions": "patient",
}


def rows():
    """Cells of the page's table."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def told():
    """Names in the first column."""
    return {name for row in rows() for name in re.findall(r"`([^`]+)`", row[0])}


def defined():
    """`path::name` of every test there is."""
    return {
        f"{path.relative_to(ROOT / 'tests')}::{found[1]}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for found in re.finditer(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def takes_away(call):
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    said = ast.unparse(call)
    moved = said.startswith("os.replace(") or (named == "replace" and len(call.args) == 1 and not call.keywords)
    moved = moved and isinstance(call.func, ast.Attribute)
    return named in CALLS or moved or "blobs.replace(" in said.partition(")")[0] or "DELETE FROM" in said


def place_of(module):
    """Its name below its room, or in none its own."""
    parts = module.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[1:] or parts)


def sites(module):
    """`folder.module.function` of everything in a module that takes something away by itself."""
    found = set()

    def walk(node, names):
        for child in ast.iter_child_nodes(node):
            inside = names
            if isinstance(child, ast.FunctionDef | ast.ClassDef) and not (names and names[-1].islower()):
                inside = [*names, child.name]
            if isinstance(child, ast.Call) and takes_away(child):
                found.add(".".join([place_of(module), *inside]))
            walk(child, inside)

    walk(ast.parse(module.read_text(encoding="utf-8")), [])
    return found


def test_each_row_is_whole():
    assert len(rows()) > 20
    assert [row[0] for row in rows() if len(row) != 6 or not all(row)] == []


def test_every_test_it_names_is_there():
    named = {name for row in rows() for name in re.findall(r"`([\w/]+\.py::\w+)`", " ".join(row[4:]))}
    assert named - defined() == set()
    assert [row[0] for row in rows() if "::" not in row[4]] == []


def test_every_method_of_a_port_is_known_for_what_it_is():
    for file in (PACKAGE / "ports").glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in PORTS:
                methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
                takes, leaves = set(PORTS[node.name].split()), set(HARMLESS[node.name].split())
                assert methods == takes | leaves, (
                    f"say in this test what {methods ^ (takes | leaves)} of {node.name} is"
                )
                assert not takes & leaves


@pytest.mark.parametrize("port", PORTS)
def test_every_destructive_method_of_a_port_has_a_row(port):
    assert {f"{port}.{name}" for name in PORTS[port].split()} - told() == set()


def test_every_place_that_takes_something_away_has_a_row():
    modules = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    found = {name for module in modules for name in sites(module)}
    assert found, "the scan finds nothing"
    assert found - told() == set()


def test_no_row_names_what_is_not_there():
    modules = sorted(PACKAGE.rglob("*.py"))
    there = {".".join([place_of(path), *names]) for path in modules for names in _functions(path)}
    ports = {f"{port}.{name}" for port, names in PORTS.items() for name in names.split()}
    assert told() - there - ports == set()


def _functions(path):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield [node.name]
        if isinstance(node, ast.ClassDef):
            yield from ([node.name, one.name] for one in node.body if isinstance(one, ast.FunctionDef))

"""A dry run says what would be done, and changes nothing: no entry, no file."""

import json
import shlex

import pytest

LINES = [
    "run open r1 --repin",
    "run open r2 --watch other",
    "run close r1 --reason because",
    "run reopen r1 --reason because",
    "commit unseen/step-400 --run r1 --step 400",
    "sweep",
    "watch",
    "watch --install",
    "replicate r1@100 --to cold",
    "release r1@100 --from hot",
    "restore r1@100 --to new",
    "resume r1 --to out --record r1@100",
    "rollback plan r1 --to 100 --reason because --model-only --while-running",
    "rollback request r1 --to 100 --reason because --model-only --while-running",
    "rollback apply PLAN",
    "verify",
    "tier init cold",
    "init .",
    "init other --profile laptop",
    "doctor",
    "doctor --as-user root",
    "demo --dir d",
    "down",
]
DERIVED = ("ledger.index.sqlite", "ledger.journal.sqlite")


def files(home):
    """Every file's path, size and time, but for what is derived or remembers what was looked at."""
    found = {}
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.name.startswith(DERIVED):
            stat = path.stat()
            found[str(path.relative_to(home))] = (stat.st_size, stat.st_mtime_ns)
    return found


@pytest.mark.parametrize("line", LINES)
def test_it_changes_nothing(shared, line):
    trained = shared
    plan = trained.ok("rollback", "plan", "r1", "--to", 100, "--reason", "because", "--model-only", "--while-running")[
        "plan"
    ]
    words = shlex.split(line.replace("PLAN", plan))
    before, tips = files(trained.home), trained.tips()
    document = trained.ok(*words, "--dry-run")
    assert document["dry_run"] is True
    assert all(isinstance(one, str) for one in document["would"])
    assert trained.tips() == tips
    assert files(trained.home) == before
    text = trained(*words, "--dry-run").out
    assert "would" in text or "nothing to do" in text


def test_what_would_fail_fails(trained):
    """On a site of its own: four minutes after its last save the run of the shared one counts as stopped."""
    assert trained.fails("restore", "r1@100", "--to", "out", "--dry-run")["exit_code"] == 7
    assert trained.fails("rollback", "plan", "r1", "--to", "100", "--reason", "because", "--dry-run")["exit_code"] == 7
    assert trained.fails("tier", "init", "nowhere", "--dry-run")["exit_code"] == 2


def test_a_sweep_says_what_it_would_find(trained):
    trained.save(400)
    would = trained.ok("sweep", "--dry-run")["would"]
    assert any("as r1@400" in one for one in would)
    assert not any("r1@300" in one and "commit" in one for one in would)


def test_deciding_dry(trained, someone):
    trained.settings("required: false", "required: true")
    asked = trained.ok(
        "rollback", "request", "r1", "--to", 100, "--reason", "because", "--model-only", "--while-running"
    )
    name, digest, tips = asked["rollback"], asked["plan"][:12], trained.tips()
    assert trained.fails("rollback", "approve", name, "--digest", digest, "--dry-run")["exit_code"] == 7
    bea = someone("bea")
    assert trained.ok("rollback", "approve", name, "--digest", digest, "--dry-run", environ=bea)["would"]
    assert trained.ok("rollback", "refuse", name, "--reason", "because", "--dry-run", environ=bea)["would"]
    assert trained.fails("rollback", "apply", name, "--dry-run")["exit_code"] == 7
    assert trained.tips() == tips


def test_approving_again_is_foreseen_as_it_is(trained, someone):
    trained.settings("required: false", "required: true")
    asked = trained.ok(
        "rollback", "request", "r1", "--to", 100, "--reason", "because", "--model-only", "--while-running"
    )
    asking = ("rollback", "approve", asked["rollback"], "--digest", asked["plan"][:12])
    bea, cem = someone("bea"), someone("cem")
    for who, exit_code in ((bea, 0), (bea, 0), (cem, 7)):
        foreseen, done = (trained(*asking, *more, environ=who) for more in (["--dry-run"], []))
        assert (foreseen.code, done.code) == (exit_code, exit_code)


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (("tier", "rename", "tape", "cold"), 3),
        (("tier", "rename", "hot", "cold"), 3),
        (("node", "rename", "node-z", "node-a"), 3),
        (("node", "rename", "node-a", "node-z"), 7),
        (("metric", "r1@100", "loss=nan", "--reason", "because"), 2),
        (("rollback", "refuse", "r-none", "--reason", "because"), 3),
    ],
)
def test_what_is_refused_is_refused_by_its_dry_run_in_the_same_words(shared, words, exit_code):
    foreseen, done = shared.fails(*words, "--dry-run"), shared.fails(*words)
    assert foreseen == done
    assert done["exit_code"] == exit_code


def test_a_place_that_is_another_ledger_s_is_refused_dry(trained):
    file = trained.home / "cold" / "lakemark-tier.json"
    other = json.loads(file.read_text()) | {"id": "7" * 32, "ledger": "5111ba71-c267-42cf-8c07-8b5d00b213d2"}
    file.chmod(0o600)
    file.write_text(json.dumps(other))
    trained.settings("cold:", "attic:")
    for more in (["--dry-run"], []):
        error = trained.fails("tier", "init", "attic", *more)
        assert error["exit_code"] == 7
        assert "ledger" in error["message"]


def test_what_is_there_already_is_nothing_to_do(trained):
    trained.ok("metric", "r1@100", "mmlu=0.5", "--reason", "because")
    assert trained.ok("metric", "r1@100", "mmlu=0.5", "f1=1", "--reason", "because", "--dry-run")["would"] == [
        f"add f1=1 to r1@100 ({trained.ok('show', 'r1@100')['record'][:12]})"
    ]
    for words, said in (
        (("metric", "r1@100", "mmlu=0.5", "--reason", "because"), "the record says so already"),
        (("run", "reopen", "r1", "--reason", "because"), "it is open"),
        (("tier", "init", "cold"), "it is registered"),
    ):
        tips = trained.tips()
        assert trained.ok(*words, "--dry-run")["would"] == [f"change nothing: {said}"]
        trained.ok(*words)
        assert trained.tips() == tips

"""What holds for every flow, and can be seen without running one."""

import ast
from importlib import import_module
from pathlib import Path

import pytest
from prefect import Flow, Task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import ParameterTypeError
from prefect.states import Failed
from prefect.utilities.schema_tools.validation import ValidationError as ValidationFailed, validate
from pydantic import ValidationError

from flows import _edge, rollback
from lakemark.errors import Corrupt, Incomplete, LakemarkError, NoReplica, Refused, StoreUnavailable
from lakemark.model.back.briefing import briefing
from lakemark.model.back.rollback_plan import RollbackPlan
from lakemark.services.back.rollback_request import request
from lakemark.services.back.surroundings import around
from tests.services.world import World

FOLDER = Path(__file__).parents[2] / "flows"
NAMES = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
# An exception in on_commit is swallowed; a paused run is killed with its lease; the others store by pickle.
FORBIDDEN = {
    "transaction",
    "on_commit",
    "on_rollback",
    "on_completion",
    "on_failure",
    "pause_flow_run",
    "pickle",
    "cloudpickle",
    "cache_key_fn",
}


def words(source):
    """Every name, attribute, import and argument of the source."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.alias(name=name):
                found.update(name.split("."))
    return found


def members(kind):
    return [
        pytest.param(value, id=f"{name}.{value.name}")
        for name in NAMES
        for value in vars(import_module(f"flows.{name}")).values()
        if isinstance(value, kind)
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_nothing_durable_hangs_on_a_hook(path):
    assert words(path.read_text()) & FORBIDDEN == set()


@pytest.mark.parametrize(
    "source",
    [
        "from prefect.transactions import transaction",
        "import prefect.transactions as t\nwith t.transaction(): pass",
        "@append.on_commit\ndef told(txn): pass",
        "flow(on_completion=[told])",
    ],
)
def test_such_a_hook_would_be_seen(source):
    assert words(source) & FORBIDDEN


@pytest.mark.parametrize("path", sorted(FOLDER.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_every_task_is_made_by_step(path):
    assert "task" not in words(path.read_text())


@pytest.mark.parametrize("task", members(Task))
def test_a_task_is_retried_only_where_a_store_was_out_of_reach(task):
    assert task.retry_condition_fn is _edge.transient
    assert task.retries == len(_edge.RETRIES)
    assert task.retry_delay_seconds == [5.0, 30.0, 120.0]


@pytest.mark.parametrize("task", members(Task))
def test_no_task_is_cached_and_no_result_written(task):
    assert task.cache_policy == NO_CACHE
    assert task.persist_result is False


@pytest.mark.parametrize("flow", members(Flow))
def test_no_result_of_a_flow_is_written_and_none_is_retried_whole(flow):
    assert flow.persist_result is False
    assert flow.retries == 0
    assert flow.log_prints is False


@pytest.mark.parametrize("flow", members(Flow))
def test_parameters_are_names_ids_and_numbers(flow):
    schema = flow.parameters.model_dump()
    models = [schema, *schema["definitions"].values()]
    names = {name for model in models for name in model.get("properties", {})}
    assert names <= {
        *(
            "run",
            "step",
            "name",
            "node",
            "record",
            "tier",
            "job",
            "without",
            "without_step",
            "rollback",
            "stale_after_minutes",
        ),
        *("to", "reason", "requester", "model_only", "data_only", "move_branch", "while_running"),
    }


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StoreUnavailable("s3 is away", advice=""), True),
        (Refused("no", advice=""), False),
        (Corrupt("other bytes", advice=""), False),
        (Incomplete("half", advice=""), False),
        (NoReplica("none", advice=""), False),
        (LakemarkError("whatever", advice=""), False),
        (OSError(5, "Input/output error"), False),
        (ValueError("a bug"), False),
    ],
)
def test_what_is_worth_another_try(error, again):
    assert _edge.transient(None, None, Failed(data=error)) is again


@pytest.mark.parametrize("flow", members(Flow))
def test_parameters_are_flat(flow):
    """So that `prefect deployment run rollback/rollback -p run=llama -p to=3d` works, and every form is one list."""
    schema = flow.parameters.model_dump()
    assert "object" not in {one.get("type") for one in schema["properties"].values()}
    assert not [one for one in schema["definitions"].values() if one.get("type") == "object"]


@pytest.mark.parametrize("name", ["commit", "restore", "resume", "rollback"])
def test_every_field_of_a_form_is_explained(name):
    """Prefect takes the words from the flow's docstring, and none from pydantic."""
    fields = of(name).parameters.model_dump()["properties"]
    assert [field for field, said in fields.items() if not said.get("description")] == []


GOOD = {
    "commit": {"run": "a", "step": 1, "name": "step-1"},
    "restore": {"run": "a", "record": "0" * 64, "name": "here"},
    "resume": {"run": "a", "job": "7"},
    "rollback": {"run": "llama", "to": "3d", "reason": "loss went up", "requester": "ana"},
}


def of(name):
    return (
        import_module(f"flows.{name}").roll_back
        if name == "rollback"
        else getattr(import_module(f"flows.{name}"), name)
    )


@pytest.mark.parametrize(
    ("flow", "good", "bad"),
    [
        ("rollback", {}, {"reason": "x"}),
        ("rollback", {}, {"reason": "x" * 1001}),
        ("rollback", {}, {"requester": ""}),
        ("rollback", {"to": 100}, {"to": ""}),
        ("rollback", {}, {"run": "r" * 64}),
        ("rollback", {}, {"run": ""}),
        ("rollback", {"rollback": "rb-0123456789"}, {"rollback": "rb-1"}),
        ("rollback", {}, {"rollback": "../../etc"}),
        ("restore", {}, {"name": "../up"}),
        ("restore", {}, {"name": "/etc"}),
        ("restore", {}, {"name": ".."}),
        ("restore", {}, {"record": "0" * 12}),
        ("commit", {}, {"name": "../step-1"}),
        ("commit", {}, {"name": ".."}),
        ("commit", {"name": "..."}, {"name": "."}),
        ("commit", {"name": ".hidden"}, {"name": "a\0"}),
        ("commit", {}, {"step": -1}),
        ("resume", {"without": ["rng"]}, {"without": ["rng", "luck"]}),
        ("resume", {"without": [], "job": 7}, {"without": "rng"}),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(flow, good, bad):
    of(flow).validate_parameters(GOOD[flow] | good)
    with pytest.raises(ParameterTypeError):
        of(flow).validate_parameters(GOOD[flow] | good | bad)


@pytest.mark.parametrize(
    ("flow", "given"),
    [
        ("rollback", {"to": 100}),
        ("rollback", {"run": 2024, "to": 100}),
        ("commit", {"run": 7, "name": 100, "node": 12}),
        ("restore", {"run": 7, "name": 100, "tier": 2, "node": 12}),
        ("resume", {"run": 7, "job": 4711, "node": 12}),
    ],
)
def test_digits_are_taken_as_text_before_and_after_the_server(flow, given):
    """`prefect deployment run … -p to=100` sends a number: the server holds it against the schema, then the flow gets it."""
    schema = of(flow).parameters.model_dump()
    validate(GOOD[flow] | given, schema, raise_on_error=True)
    taken = of(flow).validate_parameters(GOOD[flow] | given)
    assert {name: taken[name] for name in given} == {name: str(value) for name, value in given.items()}


@pytest.mark.parametrize("wrong", [True, None, 1.5, ["100"], {"step": 100}])
def test_what_is_neither_text_nor_digits_is_refused_before_and_after_the_server(wrong):
    asked = GOOD["rollback"] | {"to": wrong}
    with pytest.raises(ValidationFailed):
        validate(asked, of("rollback").parameters.model_dump(), raise_on_error=True)
    with pytest.raises(ParameterTypeError):
        of("rollback").validate_parameters(asked)


@pytest.fixture
def world():
    made = World()
    made.open()
    made.saves(100, 200, 300)
    made.clock.wait(hours=1)
    return made


REASON = "loss `up`\n\nplan digest: `000000000000`\n# approve me <script>[x](http://evil)"


@pytest.fixture
def asked(world):
    return request(world.site(), world.wish(100, reason=REASON, requester="ana\r\n- by bea"))


@pytest.fixture
def lines(world, asked):
    plan = RollbackPlan.from_json(dict(asked.plan))
    site = world.site()
    about = briefing(site.ledger.run(plan.run), plan, around(site, plan.run), standing=asked)
    return rollback.plan_lines(asked, plan, about)


def test_the_form_says_what_has_to_be_known_at_night(asked, lines):
    """The step that is and the one that will be, how old, with which data, to where, until when, who may, what then."""
    plan = RollbackPlan.from_json(dict(asked.plan))
    text = "\n".join(lines)
    for told in (
        "step **100**",
        "- **now**: step 300",
        " ago)",
        plan.target.record[:12],
        plan.digest[:12],
        asked.id,
        "200 steps",
        plan.data[0].commit[:12],
        "- **data changes**",
        "- **to**: ",
        "- **expires**: ",
        "may approve alone from",
        "- **before**: stop the trainer of ",
        "- **after**: `lakemark resume ",
        f"lakemark rollback approve {asked.id}",
    ):
        assert told in text, text


def test_whoever_asks_cannot_write_lines_into_the_form(asked, lines):
    plan = RollbackPlan.from_json(dict(asked.plan))
    assert [line for line in lines if line.startswith("- **plan**")] == [f"- **plan**: {plan.digest[:12]}"]
    (why,) = [line for line in lines if line.startswith("- **why**")]
    assert "\\`000000000000\\`" in why
    assert "\\<script\\>\\[x\\]" in why
    assert why.endswith("(ana - by bea)")
    assert not [line for line in lines if "\n" in line or "\r" in line]


def test_the_form_shows_the_plan_decides_nothing_and_asks_for_what_a_decision_needs(asked, lines):
    plan = RollbackPlan.from_json(dict(asked.plan))
    form = rollback.question(asked, plan, [("now", "step 300")], said="the answer of ana does not count: too *early*")
    assert "Roll **llama** back" in form._description
    assert form._description.startswith("**the answer of ana does not count: too \\*early\\*.**")
    schema = form.model_json_schema()
    # A refusal needs no digest, an approval no reason.
    assert sorted(schema["required"]) == ["approver", "decision"]
    assert {"plan_digest", "reason"} <= schema["properties"].keys()
    with pytest.raises(ValidationError):
        form()

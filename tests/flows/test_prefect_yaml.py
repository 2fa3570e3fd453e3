"""prefect.yaml, read more strictly than Prefect does: it ignores keys it does not know, and drops what they meant."""

import copy
import inspect
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from prefect.cli.deploy._models import (
    ConcurrencyLimitSpec,
    DeploymentConfig,
    PrefectYamlModel,
    RawScheduleConfig,
    WorkPoolConfig,
)
from prefect.client.schemas.objects import ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import construct_schedule
from prefect.exceptions import ParameterTypeError
from prefect.flows import load_flow_from_entrypoint
from pydantic import ValidationError

from lakemark.sandbox import prefect as sandbox

ROOT = Path(__file__).parents[2]
FILE = ROOT / "prefect.yaml"
QUEUES = set(sandbox.queues("NODE")) - {"node-NODE"}
STEPS = ("build", "push", "pull")


class Strict(yaml.SafeLoader):
    """Refuses a key that is given twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise ValueError(f"given twice: {sorted(twice)}")
        return super().construct_mapping(node, deep)


def read(text):
    return yaml.load(text, Loader=Strict)


def known(model):
    return {field.alias or name for name, field in model.model_fields.items()}


def unknown(where, given, model, *, also=()):
    return [f"{where}{key}: unknown key" for key in given if key not in known(model) | set(also)]


def problems(document):
    """Everything that is wrong with the file, by the path of the key."""
    found = unknown("", document, PrefectYamlModel, also=["definitions"])
    for kind in STEPS:
        found += steps(f"{kind}.", document.get(kind) or [])
    names = [deployment.get("name") for deployment in document.get("deployments", [])]
    found += [f"deployments.{name}: given twice" for name in sorted(set(names)) if names.count(name) > 1]
    for deployment in document.get("deployments", []):
        found += deployed(f"deployments.{deployment.get('name')}.", deployment)
    return found


def steps(where, listed):
    found = []
    for step in listed:
        for name, arguments in step.items():
            module, _, function = name.rpartition(".")
            accepted = inspect.signature(getattr(import_module(module), function)).parameters
            found += [f"{where}{name}.{key}: unknown key" for key in arguments if key not in accepted]
    return found


def deployed(where, given):
    found = unknown(where, given, DeploymentConfig)
    found += [
        f"{where}{key}: not used here, and not checked"
        for key in ("schedule", "triggers", "sla", *STEPS)
        if key in given
    ]
    found += unknown(f"{where}work_pool.", given.get("work_pool", {}), WorkPoolConfig)
    pool = given.get("work_pool", {})
    if pool.get("name") != sandbox.POOL or pool.get("work_queue_name") not in QUEUES:
        found.append(f"{where}work_pool: no worker polls {pool.get('name')}/{pool.get('work_queue_name')}")
    found += limited(f"{where}concurrency_limit.", given)
    try:
        flow = load_flow_from_entrypoint(given.get("entrypoint", ""), use_placeholder_flow=False)
    except Exception as error:  # noqa: BLE001 - whatever importing it raises
        return [*found, f"{where}entrypoint: {error}"]
    if flow.name != given.get("name"):
        found.append(f"{where}name: the flow is called {flow.name}")
    found += parameters(f"{where}parameters.", flow, given.get("parameters", {}))
    for schedule in given.get("schedules", []):
        found += scheduled(f"{where}schedules.", schedule, flow, given.get("parameters", {}))
    return found


def limited(where, given):
    limit = given.get("concurrency_limit")
    if limit is None:
        return [f"{where}limit: scheduled runs would pile up"] if given.get("schedules") else []
    if not isinstance(limit, dict):
        return [f"{where}collision_strategy: say what happens to the next run"]
    found = unknown(where, limit, ConcurrencyLimitSpec)
    if limit.get("collision_strategy") not in {strategy.value for strategy in ConcurrencyLimitStrategy}:
        found.append(f"{where}collision_strategy: {limit.get('collision_strategy')} is none")
    if not isinstance(limit.get("limit"), int) or limit["limit"] < 1:
        found.append(f"{where}limit: not a number of runs")
    return found


def parameters(where, flow, given):
    found = [f"{where}{key}: unknown parameter" for key in given if key not in flow.parameters.properties]
    missing = [key for key in flow.parameters.required if key not in given]
    if not found and not missing:
        try:
            flow.validate_parameters(given)
        except ParameterTypeError as error:
            found.append(f"{where[:-1]}: {error}")
    return found


def scheduled(where, given, flow, common):
    found = unknown(where, given, RawScheduleConfig)
    if not found:
        try:
            RawScheduleConfig.model_validate(given)
            construct_schedule(cron=given.get("cron"), interval=given.get("interval"), timezone=given.get("timezone"))
        except (ValidationError, ValueError) as error:
            found.append(f"{where[:-1]}: {error}")
    if not given.get("slug"):
        found.append(f"{where}slug: missing; a redeploy would switch the schedule on again")
    if "cron" in given and not given.get("timezone"):
        found.append(f"{where}timezone: missing")
    together = common | given.get("parameters", {})
    if "stale_after_minutes" not in together:
        found.append(f"{where}parameters.stale_after_minutes: missing; late runs would all run")
    elif "interval" in given and together["stale_after_minutes"] * 60 != 2 * given["interval"]:
        found.append(f"{where}parameters.stale_after_minutes: not two intervals")
    missing = [key for key in flow.parameters.required if key not in together]
    found += [f"{where}parameters.{key}: missing; nobody is there to say it" for key in missing]
    return found + parameters(f"{where}parameters.", flow, together)


@pytest.fixture
def document():
    return read(FILE.read_text())


def test_prefect_yaml_says_nothing_that_prefect_would_ignore(document):
    assert problems(document) == []


def test_every_flow_is_deployed_once(document):
    modules = {path.stem for path in (ROOT / "flows").glob("[!_]*.py")}
    assert sorted(deployment["name"] for deployment in document["deployments"]) == sorted(modules)


def test_home_is_left_for_the_worker_to_fill_in(document):
    (step,) = document["pull"]
    assert step == {"prefect.deployments.steps.set_working_directory": {"directory": "{{ $LAKEMARK_HOME }}"}}


def test_a_rollback_never_waits_for_a_slot_nor_loses_one(document):
    (rollback,) = [deployment for deployment in document["deployments"] if deployment["name"] == "rollback"]
    assert "concurrency_limit" not in rollback
    assert rollback["work_pool"]["work_queue_name"] == "urgent"


def change(document, name, path, value):
    """`document` with `value` at `path` below the deployment `name` (None: of the file); ... takes the key away."""
    made = copy.deepcopy(document)
    at = made if name is None else next(one for one in made["deployments"] if one["name"] == name)
    *way, last = path
    for key in way:
        at = at[key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return made


@pytest.mark.parametrize(
    ("name", "path", "value", "told"),
    [
        (None, ["deploymentz"], [], "deploymentz: unknown key"),
        (None, ["pull", 0, "prefect.deployments.steps.set_working_directory", "dir"], "x", "set_working_directory.dir: unknown"),
        ("sweep", ["concurency_limit"], 1, "deployments.sweep.concurency_limit: unknown key"),
        ("sweep", ["concurrency_limit"], ..., "deployments.sweep.concurrency_limit.limit: scheduled runs would pile up"),
        ("sweep", ["concurrency_limit", "colision_strategy"], "ENQUEUE", "concurrency_limit.colision_strategy: unknown key"),
        ("sweep", ["concurrency_limit", "collision_strategy"], "CANCEL_OLD", "collision_strategy: CANCEL_OLD is none"),
        ("sweep", ["schedules", 0, "intervall"], 300, "deployments.sweep.schedules.intervall: unknown key"),
        ("sweep", ["schedules", 0, "slug"], ..., "deployments.sweep.schedules.slug: missing"),
        ("sweep", ["schedules", 0, "interval"], 301, "stale_after_minutes: not two intervals"),
        ("sweep", ["schedules", 0, "parameters"], {"nod": "a"}, "schedules.parameters.nod: unknown parameter"),
        ("sweep", ["parameters", "stale_after_minuts"], 10, "parameters.stale_after_minuts: unknown parameter"),
        ("sweep", ["parameters", "stale_after_minutes"], "soon", "deployments.sweep.parameters: "),
        ("sweep", ["work_pool", "queue"], "urgent", "deployments.sweep.work_pool.queue: unknown key"),
        ("sweep", ["work_pool", "work_queue_name"], "urgnt", "no worker polls lakemark/urgnt"),
        ("sweep", ["entrypoint"], "flows.sweep.sweeep", "deployments.sweep.entrypoint: "),
        ("sweep", ["entrypoint"], "flows.swep.sweep", "deployments.sweep.entrypoint: "),
        ("sweep", ["name"], "demote", "deployments.demote: given twice"),
        ("sweep", ["schedule"], {"interval": 5}, "deployments.sweep.schedule: not used here"),
        ("verify", ["schedules", 0, "cron"], "30 25 * * *", "deployments.verify.schedules: "),
        ("verify", ["schedules", 0, "timezone"], ..., "deployments.verify.schedules.timezone: missing"),
        ("restore", ["schedules"], [{"interval": 60, "slug": "x"}], "schedules.parameters.name: missing"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, list) else None,
)  # fmt: skip
def test_a_slip_is_named(document, name, path, *, value, told):
    found = problems(change(document, name, path, value))
    assert any(told in one for one in found), found


def test_a_key_given_twice_is_named():
    with pytest.raises(ValueError, match="tags"):
        read("deployments:\n  - name: a\n    tags: [x]\n    tags: [y]\n")

"""The machine of `machine.py`, a little of it each time; more under HYPOTHESIS_PROFILE=ci."""

from hypothesis import HealthCheck, settings

from tests.services.machine import Machine

TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=max(12, settings().max_examples // 4),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

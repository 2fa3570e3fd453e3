"""On real frameworks, in the environment of `make frameworks`. In CI nothing here may be skipped."""

import pytest

from tests.conftest import IN_CI


def _not_in_ci(report):
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI must have everything in the group `frameworks`: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _not_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _not_in_ci((yield))


def pytest_terminal_summary(terminalreporter):
    """What the examples found, also where it was as it should be."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == "table":
                terminalreporter.write_line(value)

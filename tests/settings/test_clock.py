"""The clock is the machine's, unless a demo or test may say otherwise."""

from datetime import UTC, datetime, timedelta

import pytest

from lakemark.errors import Misconfigured, Usage
from lakemark.settings import clock_from, is_simulated

INSTANT = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.fixture
def simulated(configured):
    return configured("simulated_clock: true\n").settings


@pytest.mark.parametrize("environ", [{}, {"LAKEMARK_CLOCK": ""}])
def test_the_machines_clock(configured, simulated, environ):
    for settings in (configured().settings, simulated):
        before = datetime.now(UTC)
        now = clock_from(settings, environ)()
        assert before <= now <= datetime.now(UTC)
        assert now.utcoffset() == timedelta()
        assert not is_simulated(environ)


@pytest.mark.parametrize("text", ["2026-11-26T12:00:00Z", "2026-11-26T13:00:00+01:00"])
def test_a_fixed_instant(simulated, text):
    environ = {"LAKEMARK_CLOCK": text}
    now = clock_from(simulated, environ)
    assert now() == now() == INSTANT
    assert now().tzinfo is UTC
    assert is_simulated(environ)


def test_a_file_is_read_at_each_use(simulated, tmp_path):
    file = tmp_path / "clock"
    file.write_text("2026-11-26T12:00:00Z\n")
    now = clock_from(simulated, {"LAKEMARK_CLOCK": f"@{file}"})
    assert now() == INSTANT
    file.write_text("2026-11-29T12:00:00Z")
    assert now() == INSTANT + timedelta(days=3)
    file.write_text("tomorrow")
    with pytest.raises(Usage, match="clock: 'tomorrow' is not an ISO 8601 instant"):
        now()
    file.unlink()
    with pytest.raises(Usage, match="cannot be read"):
        now()


@pytest.mark.parametrize("text", ["2026-11-26T12:00:00Z", "nonsense", "@/gone"])
def test_elsewhere_it_is_refused(configured, text):
    with pytest.raises(Misconfigured, match="this site's clock is not simulated") as caught:
        clock_from(configured().settings, {"LAKEMARK_CLOCK": text})
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["2026-11-26", "2026-11-26T12:00:00", "3d", "2026-13-26T12:00:00Z"])
def test_what_is_no_instant(simulated, text):
    with pytest.raises(Usage, match="LAKEMARK_CLOCK: ") as caught:
        clock_from(simulated, {"LAKEMARK_CLOCK": text})
    assert caught.value.exit_code == 2

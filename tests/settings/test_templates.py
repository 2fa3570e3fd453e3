"""What `init` writes is valid, is easy to edit at night, and is what configs/ shows."""

from pathlib import Path

import pytest

from lakemark.errors import Usage
from lakemark.settings import PROFILES, HotTree, loads, render
from lakemark.settings.document import parse

CONFIGS = Path(__file__).parents[2] / "configs"
PORTS = {"s3": 8333, "lakefs": 8000}
LEDGER = "ssh://git@git.example.org/site.git"


def written(profile: str, *, site: str = "lab", node: str = "node-a", ledger_url: str | None = LEDGER) -> str:
    return render(profile, site=site, node=node, ports=PORTS, ledger_url=ledger_url)


def read(text: str):
    return loads(text, file=Path("/srv/lakemark.yaml"), environ={}, hostname="h").settings


def test_the_profiles():
    assert PROFILES == ("laptop", "solo", "node", "reader", "cluster")


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_is_valid(profile):
    text = written(profile)
    settings = read(text)
    assert (settings.site, settings.node, settings.ledger.remote) == ("lab", "node-a", LEDGER)
    assert "$" not in text
    assert settings.simulated_clock is False
    assert isinstance(settings.tiers["hot"], HotTree)


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_has_one_setting_a_line(profile):
    lines = written(profile).splitlines()
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)
    settings = [
        line.partition(" #")[0].rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")
    ]
    assert all(line.count(": ") <= 1 for line in settings if "{" not in line), "a setting shares its line"
    assert sum("{" in line for line in settings) <= 1, "only `best`, which is one rule, stands in braces"
    tops = [line.partition(":")[0] for line in settings if not line.startswith(" ")]
    assert tops == list(parse(written(profile), name="f").value)


def test_a_comment_stays_beside_a_long_value_and_inside_a_strange_one():
    url = "/git/a  # b/" + "x" * 40 + ".git"
    text = written("node", ledger_url=url)
    assert read(text).ledger.remote == url
    node = written("node", node="n" * 50)
    assert f"node: {'n' * 50} # LAKEMARK_NODE overrides it" in node


def test_laptop_has_everything_on_loopback():
    settings = read(render("laptop", site="lab", node="n", ports={"s3": 1234, "lakefs": 4321}))
    assert settings.tiers["warm"].endpoint == "http://127.0.0.1:1234"
    assert settings.data.endpoint == "http://127.0.0.1:4321"
    assert settings.ledger.remote is None
    assert (settings.sandbox.s3, settings.sandbox.lakefs, settings.sandbox.prefect) == (
        "seaweedfs",
        "stand-in",
        "server",
    )
    assert list(settings.tiers) == ["hot", "warm", "cold"]


def test_solo_asks_nobody_and_needs_no_server():
    settings = read(written("solo", ledger_url=None))
    assert settings.data is None
    assert settings.approval.required is False
    assert [tier.kind for tier in settings.tiers.values()] == ["tree", "directory"]
    assert settings.sandbox.s3 is settings.sandbox.lakefs is settings.sandbox.prefect is None


def test_a_reader_deletes_nothing():
    assert read(written("reader")).retention.apply is False


@pytest.mark.parametrize("text", ["no", "007", "7", "null", "1.5", "a-b.c", "true"])
def test_names_read_back_as_they_are(text):
    assert read(written("solo", node=text)).node == text


@pytest.mark.parametrize(
    "url", ["/git/with space/x.git", "/git/a,b}.git", "git@h:x.git", "/git/#x", "/git/ünï.git", "/git/'q'\"r.git"]
)
def test_ledgers_read_back_as_they_are(url):
    assert read(written("node", ledger_url=url)).ledger.remote == url


def test_what_is_missing_is_usage():
    with pytest.raises(Usage, match="'desktop' is not a profile"):
        written("desktop")
    for profile in ("node", "reader"):
        with pytest.raises(Usage, match="no ledger is named"):
            written(profile, ledger_url=None)
    with pytest.raises(Usage, match="no port is given for the sandbox's lakefs"):
        render("laptop", site="a", node="b", ports={"s3": 1})


def test_configs_laptop_is_what_init_writes():
    expected = render("laptop", site="laptop", node="node-a", ports=PORTS)
    assert (CONFIGS / "laptop.yaml").read_text() == expected


def test_the_cluster_profile_is_the_commented_example_in_short():
    example = parse((CONFIGS / "cluster.yaml").read_text(), name="f").value
    short = parse(written("cluster"), name="f").value
    for key in ("copies", "residence", "objectives", "serve"):
        assert short[key] == example[key]
    assert list(short["tiers"]) == list(example["tiers"])

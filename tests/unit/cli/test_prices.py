"""`--prices FILE` and `cost`: a site's own prices, and what a message of a missing price tells."""

import contextlib
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import SPEC, a_spec_text

from gpucluster.cli import main as program
from gpucluster.cost.site_prices import EXAMPLE, site_prices
from gpucluster.errors import GpuclusterError

ROOT = Path(__file__).parents[3]
SITE = """\
date: 2026-11-01
region: us-east-2
machines: {m7i.2xlarge: 0.5, p5en.48xlarge: 70.10, p5e.48xlarge: "60"}
services: {nat-hour: 0.05, public-address-hour: 0.005, endpoint-hour: 0.01, gp3-gib-month: 0.08}
"""
Said = pytest.CaptureFixture[str]


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "site.yaml").write_text(SITE)
    return str(tmp_path / "spec.yaml")


def test_missing_price_names_the_option(spec: str, capsys: Said) -> None:
    """Regression: the next step named a file of the source tree, which a wheel does not have."""
    assert program.run(["cost", spec]) == 0
    out, err = capsys.readouterr()
    assert "p5en.48xlarge (no price for us-east-2)" in out
    assert "warning[no-price] unknown: " in err
    assert "--prices FILE (docs/prices.md)" in err
    assert "catalog/data" not in err


def test_own_prices_replace_the_catalog(spec: str, tmp_path: Path, capsys: Said) -> None:
    site = str(tmp_path / "site.yaml")
    assert program.run(["cost", spec, "--prices", site, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["cost"]
    lines = {one["name"]: one for one in found["lines"]}
    assert lines["h200"]["max"]["known"] == str(16 * 730 * 701 // 10) + ".00"
    assert lines["burst-head"]["max"] == {"known": "365.00", "unknown": [], "quantities": {}}
    assert found["prices"] == {"date": "2026-11-01", "region": "us-east-2"}
    assert program.run(["plan", spec, "--prices", site]) == 0
    assert "at prices of 2026-11-01" in capsys.readouterr().out


def test_diff_uses_them_and_its_comment_repeats_the_option(spec: str, tmp_path: Path, capsys: Said) -> None:
    site = str(tmp_path / "site.yaml")
    (tmp_path / "new.yaml").write_text(a_spec_text(("max: 16", "max: 17")))
    argv = ["diff", spec, str(tmp_path / "new.yaml"), "--no-resources", "--prices", site, "-o", "markdown"]
    assert program.run(argv) == 0
    out, err = capsys.readouterr()
    assert "prices of 2026-11-01 for us-east-2" in out
    assert f"--no-resources --prices {site}`" in out
    assert "(+51,173.00 USD at most)" in out
    assert "no-price" not in err


def test_cost_of_a_stack_by_its_name(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    """Regression: one spec's cost alone could not be reviewed."""
    monkeypatch.chdir(ROOT)
    assert program.run(["cost", "first"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("first: a month costs 338.84 USD to 739,636.12 USD\n  head first-head: ")
    assert re.search(r"\n  pool h200: 0\.00 USD to 739,297\.28 USD\n", out)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected a mapping"),
        ("{", "line "),
        (SITE.replace("region", "place"), "unknown keys 'place'"),
        (SITE.replace("date: 2026-11-01\n", ""), "date: missing"),
        (SITE.replace("2026-11-01", "November"), "date: 'November' is not a day"),
        (SITE.replace("0.5", "cheap"), "machines.m7i.2xlarge: 'cheap' is not an amount"),
        (SITE.replace("0.5", "-1"), "machines.m7i.2xlarge: '-1' is not an amount"),
        (SITE.replace("0.5", ".nan"), "is not an amount"),
        (SITE.replace("0.5", "true"), "is not an amount"),
        (f"{SITE}currency: dollars\n", "currency: 'dollars' is not valid"),
        (re.sub("machines.*", "machines: 3", SITE), "machines: expected a mapping"),
        (f"{SITE}date: 2026-11-02\n", "line 5: 'date' is already given on line 1"),
        (SITE.replace("0.5", "!money 0.5"), "line 3: the tag '!money' is not allowed"),
        (SITE.replace("0.5", "9" * 5_000), "is not a YAML int"),
    ],
)
def test_wrong_file_is_named_with_its_form(text: str, said: str) -> None:
    with pytest.raises(GpuclusterError) as caught:
        site_prices(text, "site.yaml")
    assert said in caught.value.message
    assert caught.value.message.startswith("site.yaml: ")
    assert EXAMPLE in (caught.value.next_step or "")


words = st.text(max_size=8) | st.sampled_from(
    ["date", "region", "currency", "machines", "services", "2026-11-01", "USD"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4)
)
amounts = st.dictionaries(
    words, scalars | st.from_regex(r"\A[0-9]{1,9}(\.[0-9]{1,9})?(e-?[0-9]{1,7})?\Z"), max_size=3
)
lists = st.fixed_dictionaries(
    {"date": words | st.dates().map(str), "region": words, "machines": amounts | scalars},
    optional={"currency": words, "services": amounts, "other": trees},
)


@settings(max_examples=60)  # the YAML reader keeps positions and is slow
@given(text=st.text(max_size=60) | trees.map(json.dumps) | lists.map(json.dumps))
def test_any_text_is_a_price_list_or_a_message(text: str) -> None:
    with contextlib.suppress(GpuclusterError):
        found = site_prices(text, "site.yaml")
        every: dict[Any, Decimal] = {**found.rows, **found.services}
        assert all(0 <= one <= 1_000_000 for one in every.values())
        assert all(re.fullmatch(r"\d{1,10}\.\d\d", f"{one:.2f}") for one in every.values())


def test_forms_of_the_message_and_of_the_page_are_valid() -> None:
    assert site_prices(f"{{{EXAMPLE}}}", "x").region == "eu-west-1"
    (page,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/prices.md").read_text(), re.DOTALL)
    assert site_prices(page, "x").services["nat-hour"] > 0


def test_unreadable_file(spec: str, tmp_path: Path, capsys: Said) -> None:
    assert program.run(["cost", spec, "--prices", str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_hosts_of_ones_own_cause_no_warning_that_a_price_list_cannot_end(
    tmp_path: Path, capsys: Said
) -> None:
    """Regression: a price list with the names of the hosts left the warning as it was."""
    assert program.run(["cost", str(ROOT / "stacks/lab.yaml")]) == 0
    out, err = capsys.readouterr()
    assert "unknown: ctl0 (hosts of your own have no price here)" in out
    assert "no-price" not in err


def test_a_list_of_the_region_ends_the_warning_about_a_cluster_of_eks(tmp_path: Path, capsys: Said) -> None:
    kube = str(ROOT / "stacks/kube.yaml")
    assert program.run(["cost", kube]) == 0
    out, err = capsys.readouterr()
    assert "eks control plane (no price for us-west-2)" in err
    assert "; the fee of EKS is six times as high after standard support ends; for Kubernetes 1.36 " in out
    (tmp_path / "west.yaml").write_text(
        "date: 2026-11-01\nregion: us-west-2\nmachines: {p4de.24xlarge: 27.45, m7i.xlarge: 0.21}\n"
        "services: {eks-cluster-hour: 0.10, nat-hour: 0.05, public-address-hour: 0.005, fsx-lustre-125-gib-month: 0.15}\n"
    )
    assert program.run(["cost", kube, "--prices", str(tmp_path / "west.yaml")]) == 0
    assert "no-price" not in capsys.readouterr().err

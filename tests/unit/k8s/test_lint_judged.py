"""What lint says of the manifests that a real server judges, and who refuses what, as `docs/lint.md` lists it."""

import re
from pathlib import Path

import pytest
from support.judged_manifests import JUDGED, NAMESPACES, Judged
from support.lint_errors import errors_of

DOCS = (Path(__file__).parents[3] / "docs/lint.md").read_text()
_ID = re.compile(r"`([a-z0-9-]+)`")


@pytest.mark.parametrize("row", JUDGED, ids=[row.name for row in JUDGED])
def test_refused_manifest_is_an_error_and_its_twin_is_none(row: Judged) -> None:
    assert row.rule in errors_of(f"{NAMESPACES}---\n{row.refused}")
    assert errors_of(f"{NAMESPACES}---\n{row.sound}") == set()


def section(title: str) -> str:
    return DOCS.partition(f"## {title}\n")[2].partition("\n## ")[0]


def listed(group: str) -> list[str]:
    """The rules of one row of the table of judges."""
    (row,) = [line for line in section("Who judges").splitlines() if line.startswith(f"| {group} |")]
    return _ID.findall(row.split("|")[2])


def test_each_rule_has_one_judge() -> None:
    rules = [name for line in section("Rules").splitlines() if line.startswith("| `") for name in _ID.findall(line.split("|")[1])]  # fmt: skip
    judged = [*listed("API server and webhooks"), *listed("kubelet, scheduler, controllers"), *listed("other programs"), *listed("advice")]  # fmt: skip
    assert sorted(judged) == sorted(rules)
    assert set(listed("API server and webhooks")) == {row.rule for row in JUDGED}

"""Fields of the spec page that are not built: refused by name, never ignored, never called unknown."""

from pathlib import Path

import pytest
from support.builders import a_spec_text

from gpucluster import catalog
from gpucluster.spec import inspect_text
from gpucluster.spec.unsupported import NOT_YET, not_yet_below

PAGES = Path(__file__).parents[2] / "recorded/pages"
# Ids of what follows when a part is refused: nothing else may be wrong with the page's own examples.
CONSEQUENCES = {
    "not-supported",
    "missing-key",
    "slurm-version",
    "slurm-support",
    "unused-pool",
    "machine-not-sold",
    "machines-differ",
    "storage-kind",
    "nfs-source",
    "bad-key",  # the page shortens its keys
    "bad-sha256",  # and its hash
    "no-price",  # of a machine in the budget
    "who-runs",
    "control-plane",
    "no-way-in",
    "head-state",  # what the page could do better
    "lustre-slow",
    "lustre-zone",
}


@pytest.mark.parametrize(("name", "later"), [("research", 0), ("hybrid", 0)])
def test_unsupported_examples_are_refused_with_a_reason(name: str, later: int) -> None:
    report = inspect_text((PAGES / f"{name}.yaml").read_text(), f"{name}.yaml", catalog.load())
    assert (report.spec is None) == (name == "research")  # the page shortens its public keys
    assert {problem.id for problem in report.problems} <= CONSEQUENCES
    assert sum(problem.id == "not-supported" for problem in report.problems) >= later


@pytest.mark.parametrize("row", sorted(NOT_YET))
def test_each_row_is_refused_at_its_path(row: str) -> None:
    places = {
        "storage[]": ("pools:\n  - name", "storage:\n  - {mount: /data, KEY: 1}\npools:\n  - name"),
        "storage[].nfs": (
            "pools:\n  - name",
            "storage:\n  - {mount: /data, nfs: {KEY: 1}}\npools:\n  - name",
        ),
        "storage[].fsx_lustre": (
            "pools:\n  - name",
            "storage:\n  - {mount: /data, fsx_lustre: {KEY: 1}}\npools:\n  - name",
        ),
        "pools[].capacity[]": ("{from: spot,", "{from: spot, KEY: 1,"),
        "pools[]": ("    idle: 5m", "    idle: 5m\n    KEY: 1"),
        "partitions[]": ("{name: gpu,", "{name: gpu, KEY: 1,"),
        "aws.network": ("    cidr:", "    KEY: 1\n    cidr:"),
        "aws": ("  region:", "  KEY: 1\n  region:"),
        "slurm": ("  version:", "  KEY: 1\n  version:"),
        "head": ("  machine:", "  KEY: 1\n  machine:"),
        "kubernetes": ("schema: 1", 'schema: 1\nkubernetes: {version: "1.36", KEY: 1}'),
        "": ("schema: 1", "schema: 1\nKEY: 1"),
    }
    parent, _, key = row.rpartition(".")
    old, new = places[parent]
    report = inspect_text(a_spec_text((old, new.replace("KEY", key))), "spec.yaml", catalog.load())
    assert ("not-supported", f"'{key}' is not supported yet") in {(p.id, p.message) for p in report.problems}
    assert {p.id for p in report.problems} <= CONSEQUENCES


def test_keys_below_a_path_are_only_its_own() -> None:
    assert not_yet_below("kubernetes") == ("extra",)
    assert not_yet_below("slurm") == ()
    assert "containers" not in not_yet_below("")

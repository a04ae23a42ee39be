"""Sentences and names in the rendered files that follow from the plan: topology, gres.conf, the TRES of GPUs, features."""

import pytest
from support.builders import LAB, a_lab_plan, a_plan, changed

from gpucluster import catalog
from gpucluster.plan.explain import explain
from gpucluster.plan.model import SlurmPlan
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config.render import render
from gpucluster.spec import inspect_text

TREE = 'topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}'


def text(plan: SlurmPlan, name: str) -> str:
    return next(a.content for a in render(plan) if a.path == f"slurm/{name}").decode()


@pytest.mark.parametrize(
    ("tree", "comment", "noted"),
    [
        (
            TREE,
            "spine connects all others, so a job may use any nodes.",
            "2 leaves below 1 switch at the top",
        ),
        (
            'topology: {tree: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}',
            "No switch connects two of leaf1, leaf2, so no job uses nodes of both.",
            "2 leaves below 2 switches at the top",
        ),
    ],
)
def test_the_comment_of_a_tree_is_that_of_its_roots(tree: str, comment: str, noted: str) -> None:
    """A tree with one root had the sentence of a tree with several."""
    spec = inspect_text(changed(LAB, (TREE, tree)), "lab.yaml", catalog.load()).result()
    plan = resolve(spec, catalog.load())
    assert plan.slurm is not None
    assert comment in text(plan, "topology.conf").splitlines()[0]
    notes = {note.path: (note.value, note.reason) for note in explain(spec, catalog.load(), plan)}
    assert notes["topology"][0] == noted
    assert ("any nodes" in notes["topology"][1]) == ("any nodes" in comment)


def test_gres_conf_of_hosts_does_not_speak_of_cloud_nodes() -> None:
    assert "cloud nodes" not in text(a_lab_plan(), "gres.conf")
    assert "cloud nodes" in text(a_plan(), "gres.conf")


def test_accounting_counts_gpus_by_the_types_that_jobs_ask_for() -> None:
    """The TRES of MIG slices named the model, which no node has."""
    plan = a_lab_plan(
        ('  version: "26.05"', '  version: "26.05"\n  accounting: {database: local}'),
        ("model: h100, count: 8", "model: h100, count: 8, memory: 80GiB"),
        ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mig: {1g.10gb: 7}}}'),
    )
    assert "AccountingStorageTRES=gres/gpu,gres/gpu:1g.10gb\n" in text(plan, "slurm.conf")


def test_features_of_the_spec_stand_beside_ours() -> None:
    plan = a_lab_plan(('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", features: [ib, avx512]}'))
    (line,) = [line for line in text(plan, "slurm.conf").splitlines() if line.startswith("NodeName=")]
    (feature,) = [word for word in line.split() if word.startswith("Feature=")]
    assert {"ib", "avx512", "h100"} <= set(feature.removeprefix("Feature=").split(","))

"""Features and Weights of nodes, partitions that refuse jobs without GPUs, and what `plan --explain` says about both."""

import pytest
from support.builders import a_lab_plan, a_lab_text, a_plan, a_spec

from gpucluster import catalog
from gpucluster.plan.explain import explain
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

CPU_POOL = (
    "  - {name: cpu, nodes: {min: 0, max: 4}, capacity: [{from: on-demand, machines: [m7i.2xlarge]}]}\n"
)


def _notes(*changes: tuple[str, str]) -> dict[str, tuple[str, str]]:
    spec = a_spec(*changes)
    notes = explain(spec, catalog.load(), resolve(spec, catalog.load()))
    return {note.path: (note.value, note.reason) for note in notes}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            "partitions:\n",
            {
                "gpu": (
                    "no",
                    "no partition has other nodes for jobs without GPUs, or limits them by `max_cpus_per_node`: they can use all CPUs of a GPU node",
                )
            },
        ),
        (
            f"{CPU_POOL}partitions:\n  - {{name: small, pools: [cpu]}}\n",
            {
                "gpu": ("yes", "jobs without GPUs are refused here, because they can use small"),
                "small": ("no", "the partition has nodes without GPUs. Jobs without GPUs go there first"),
            },
        ),
        (
            f"{CPU_POOL}partitions:\n  - {{name: all, pools: [h200, cpu]}}\n",
            {
                "gpu": ("yes", "jobs without GPUs are refused here, because they can use all"),
                "all": ("no", "the partition has nodes without GPUs. Jobs without GPUs go there first"),
            },
        ),
        (
            "partitions:\n  - {name: prep, pools: [h200], max_cpus_per_node: 16}\n",
            {
                "gpu": ("yes", "jobs without GPUs are refused here, because they can use prep"),
                "prep": ("no", "jobs without GPUs share the `max_cpus_per_node` of each node"),
            },
        ),
        (
            "partitions:\n  - {name: prep, pools: [h200], requires_gpus: true, max_cpus_per_node: 16}\n",
            {
                "gpu": (
                    "no",
                    "no partition has other nodes for jobs without GPUs, or limits them by `max_cpus_per_node`: they can use all CPUs of a GPU node",
                )
            },
        ),
    ],
)
def test_where_jobs_without_gpus_run(more: str, expected: dict[str, tuple[str, str]]) -> None:
    found = {path: note for path, note in _notes(("partitions:\n", more)).items() if "requires_gpus" in path}
    assert found == {f"partitions[{name}].requires_gpus": note for name, note in expected.items()}


SPOT = "      - {from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}\n"
ON_DEMAND = "      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n"


@pytest.mark.parametrize(
    ("changes", "features"),
    [
        ((), ("h200",)),
        (((ON_DEMAND, ""),), ("h200", "spot")),
        (((SPOT, ""),), ("h200", "on-demand", "p5en.48xlarge")),
        (((", p5e.48xlarge]", "]"),), ("h200", "p5en.48xlarge")),
        ((("name: h200", "name: big"), ("[h200]", "[big]")), ("big", "h200")),
        ((("name: h200", "name: spot"), ("[h200]", "[spot]")), ("h200",)),
        ((("name: h200", "name: h100"), ("[h200]", "[h100]")), ("h200",)),
    ],
)
def test_features_are_what_is_known_before_a_launch(
    changes: tuple[tuple[str, str], ...], features: tuple[str, ...]
) -> None:
    """A pool with the name of another GPU model, or of a market that it has not, does not give its name."""
    assert a_plan(*changes).pools[0].features == features


def test_features_of_hosts_are_their_gpus_and_their_kind() -> None:
    assert a_lab_plan().pools[0].features == ("h100", "hgx-h100")


def test_features_and_weights_are_explained() -> None:
    notes = _notes(("min: 0", "min: 2"))
    before = "words for `sbatch --constraint`: what is known of a node before it runs"
    later = "Decided only at a launch: spot or on-demand; p5en.48xlarge or p5e.48xlarge"
    assert notes["pools[h200].features"] == ("h200", f"{before}. {later}")
    assert notes["pools[h200].weight"][0] == "3 always on, 4 elastic"
    fixed = _notes((ON_DEMAND, ""), (", p5e.48xlarge]", "]"))
    assert fixed["pools[h200].features"] == ("h200, p5en.48xlarge, spot", before)
    assert fixed["pools[h200].weight"][0] == "4 elastic"


@pytest.mark.parametrize(
    ("nvlink", "note"),
    [
        ("", ("none", "no NVLink is known: Slurm chooses GPUs by their sockets only")),
        (", nvlink: 2", ("groups of 2", "gres.conf has them as Links: a job gets GPUs that NVLink joins")),
        (", nvlink: 8", ("none", "NVLink joins all GPUs of a node, so Slurm can choose any of them")),
    ],
)
def test_links_are_explained(nvlink: str, note: tuple[str, str]) -> None:
    text = a_lab_text(("count: 8", f"count: 8{nvlink}"))
    spec = inspect_text(text, "lab.yaml", catalog.load()).result()
    notes = {one.path: one for one in explain(spec, catalog.load(), resolve(spec, catalog.load()))}
    found = notes["pools[h100].links"]
    assert (found.value, found.reason) == note


def test_an_nvswitch_joins_all_gpus() -> None:
    assert _notes()["pools[h200].links"][0] == "none"
    assert a_plan().pools[0].shape.nvlink_group == 8

"""What jobs get of a node, and the sizes of a job that asks for none: `extra` reserves cores and memory, and limits memory."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_lab_plan, a_lab_text

from gpucluster import catalog
from gpucluster.plan.model import JobSizes
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text
from gpucluster.spec.pools import shape_of

POOL = ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", extra: {%s}}')
PART = ("default: true}", "default: true, extra: {%s}}")
SITE = ('version: "26.05"', 'version: "26.05"\n  extra: {%s}')
MEMORY, CPUS = (
    2000 * 1024 * 95 // 100,
    224,
)  # of a node of the lab: 2 sockets of 56 cores of 2 threads, 8 GPUs


def changed(*given: tuple[tuple[str, str], str]) -> tuple[tuple[str, str], ...]:
    return tuple((old, new % values) for (old, new), values in given)


@pytest.mark.parametrize(
    ("given", "memory", "gpu"),
    [
        ((), MEMORY // CPUS, 28),
        (((POOL, "MemSpecLimit: 4096"),), (MEMORY - 4096) // CPUS, 28),
        (((POOL, "memspeclimit: 4k"),), (MEMORY - 4096) // CPUS, 28),
        (((POOL, "CoreSpecCount: 2"),), MEMORY // 220, 26),
        (((POOL, 'CpuSpecList: "0,2"'),), MEMORY // 220, 26),
        (((POOL, 'CpuSpecList: "0-3"'),), MEMORY // 220, 26),
        (((POOL, "CoreSpecCount: 4, MemSpecLimit: 100000"),), (MEMORY - 100000) // 216, 26),
        (((PART, "MaxMemPerNode: 224000"),), 1000, 28),
        (((PART, "MaxMemPerNode: 0"),), MEMORY // CPUS, 28),
        (((PART, "MaxMemPerNode: UNLIMITED"),), MEMORY // CPUS, 28),
        (((PART, "MaxMemPerCPU: 1000"),), 1000, 28),
        (((SITE, "MaxMemPerNode: 224000"),), 1000, 28),
        (((SITE, "MaxMemPerNode: 224000"), (PART, "MaxMemPerNode: 448000")), 2000, 28),
        (((SITE, "MaxMemPerNode: 224000"), (PART, "MaxMemPerCPU: 3000")), 3000, 28),
        (((PART, "MaxMemPerNode: 224000"), (POOL, "CoreSpecCount: 12")), 1000, 24),
    ],
)  # fmt: skip
def test_sizes_are_of_what_extra_leaves(
    given: tuple[tuple[tuple[str, str], str], ...], memory: int, gpu: int
) -> None:
    (partition,) = a_lab_plan(*changed(*given)).partitions
    assert partition.sizes == JobSizes(memory_of_cpu_mib=memory, cpus_of_gpu=gpu)


def test_limit_of_cpus_counts_those_that_are_reserved() -> None:
    """Slurm subtracts them from MaxCPUsPerNode: with 4 of 8 reserved, a job of 8 CPUs was refused."""
    given = (
        *changed((POOL, "CoreSpecCount: 2")),
        ("default: true}", "default: true, max_cpus_per_node: 64}"),
    )
    (partition,) = a_lab_plan(*given).partitions
    assert (partition.max_cpus_per_node, partition.sizes.most_cpus_of_node, partition.sizes.cpus_of_gpu) == (
        64,
        68,
        8,
    )


@pytest.mark.parametrize(
    ("more", "gpu"),
    [
        ("max_cpus_per_node: 64", 8),  # a job with all GPUs had 224 CPUs, and was refused
        ("max_cpus_per_node: 4", None),
    ],
)
def test_share_of_a_gpu_is_below_the_cpus_of_the_partition(more: str, gpu: int | None) -> None:
    (partition,) = a_lab_plan(("default: true}", f"default: true, {more}}}")).partitions
    assert partition.sizes.cpus_of_gpu == gpu


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((POOL, "CoreSpecCount: 112"), "a value below the 112 cores of the node"),
        ((POOL, 'CpuSpecList: "0-223"'), "no core of the 112 would be left for jobs"),
        ((PART, "DefMemPerNode: 1945601"), "a value of at most 1945600"),
        ((SITE, "DefMemPerCPU: 8686"), "a value of at most 8685: of a node of the pool h100 jobs get 1945600 MiB, and a job on all its 224 CPUs"),
    ],
)  # fmt: skip
def test_what_no_job_can_use_is_refused_with_what_is_left(
    given: tuple[tuple[str, str], str], said: str
) -> None:
    found = inspect_text(a_lab_text(*changed(given)), "lab.yaml", catalog.load())
    (problem,) = found.errors
    assert problem.id == "extra-needs"
    assert said in problem.message


TWO_POOLS = (
    ('hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"}', 'hosts: "gpu[01-02]", addresses: "192.0.2.[11-12]", extra: {CoreSpecCount: 4}}\n  - {name: other, machine: hgx-h100, hosts: "gpu[03-04]", addresses: "192.0.2.[13-14]"}'),
    ("pools: [h100], default: true}", "pools: [h100, other], default: true, max_cpus_per_node: 8}"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((("default: true}", "default: true, exclusive: true, max_cpus_per_node: 8}"),), "has all 224 CPUs of its node, so with this limit no job would start"),
        (TWO_POOLS, "of a node of the pool 'h100' jobs would get 0 CPUs"),
    ],
    ids=["exclusive", "reserved"],
)  # fmt: skip
def test_limit_of_cpus_with_which_no_job_starts_is_refused(
    given: tuple[tuple[str, str], ...], said: str
) -> None:
    """On real Slurm each job was refused."""
    found = inspect_text(a_lab_text(*given), "lab.yaml", catalog.load())
    (problem,) = found.errors
    assert problem.id == "max-cpus-per-node"
    assert said in problem.message


STACKS = Path(__file__).parents[3] / "stacks"


@pytest.mark.parametrize("name", ["burst", "first", "hybrid", "lab", "research", "steady"])
def test_rules_of_the_spec_see_the_nodes_of_the_plan(name: str) -> None:
    """The rules about `extra` and about CPUs of a partition counted cores and memory themselves."""
    facts = catalog.load()
    spec = inspect_text((STACKS / f"{name}.yaml").read_text(), "x.yaml", facts).result()
    plan = resolve(spec, facts)
    assert plan.slurm is not None
    seen = {pool.name: shape_of(spec, pool, facts) for pool in spec.pools}
    assert plan.pools
    for pool in plan.pools:
        assert seen[pool.name] == replace(pool.shape, sharing=None)

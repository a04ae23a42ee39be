"""A job that asks for no size fits: slurmctld allocates it on every pool of every partition, also with `extra`.

Each stack, generated specs and each imported site, on the files as they are rendered. The database is left out, because limits
of a user are no sizes. A host has its slurmd; a node of a cloud is allocated before it boots. The user is in the groups of
AllowGroups; a partition that is DOWN has no jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from specs import generated
from test_plans import stacks

from gpucluster import catalog
from gpucluster.importer.run import import_files
from gpucluster.plan import gres
from gpucluster.plan.model import Mig, NodeShape, Partition, Pool, SlurmPlan
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

SITES = Path(__file__).parents[1] / "support/sites"
ALLOCATES_S = 30.0
STARTED = {"CONFIGURING", "RUNNING"}
AT_ONCE = 6  # jobs, each on a node of its own
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A job for one node of a pool, as a user submits it."""

    what: str
    options: tuple[str, ...]


def jobs(partition: Partition, shape: NodeShape, memory_of_gpu_mib: int) -> Iterator[Job]:
    """Return the jobs that every node of the partition must take.

    Where a partition limits the CPUs of a node, no job has the whole node (S16). A site's DefMemPerGPU may fit on one pool of a
    partition only; a job for all GPUs of another asks for less, and sbatch refuses
    the option to a job without GPUs. `--mem` does not replace that default (S16).
    """
    of_gpu = shape.job_memory_mib // max(1, gres.units(shape))
    all_memory = (f"--mem-per-gpu={of_gpu}",) if memory_of_gpu_mib > of_gpu else ()
    one, every = _gpus(shape, all_of_it=False), _gpus(shape, all_of_it=True)
    needed = one if partition.requires_gpus else ()
    yield Job("a default job", needed)
    most = partition.sizes.most_cpus_of_node
    cpus = shape.job_cpus if most is None else min(shape.job_cpus, most - shape.system_cpus)
    yield Job("the default memory on all CPUs", (*needed, "--ntasks=1", f"--cpus-per-task={cpus}"))
    if partition.max_cpus_per_node is None:
        yield Job("a whole node", (*needed, "--exclusive", *(all_memory if needed else ())))
    if every:
        yield Job("all GPUs", (*every, *all_memory))
    if isinstance(shape.sharing, Mig):
        for part in shape.sharing.slices:
            yield Job(f"a slice {part.profile}", (f"--gres=gpu:{part.profile}:1",))


def _gpus(shape: NodeShape, *, all_of_it: bool) -> tuple[str, ...]:
    if not shape.gpu_count:
        return ()
    if isinstance(
        shape.sharing, Mig
    ):  # Slurm refuses three types of all slices in one request; without a type it finds them
        return (
            f"--gres=gpu:{gres.units(shape)}"
            if all_of_it
            else f"--gres=gpu:{shape.sharing.slices[0].profile}:1",
        )
    return (f"--gres=gpu:{shape.gpu_count if all_of_it else 1}",)


@pytest.mark.parametrize("name", sorted(stacks()))
@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_of_a_stack_are_allocated(version: str, name: str) -> None:
    allocates(version, stacks()[name])


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_of_a_generated_spec_are_allocated(version: str, spec_number: int) -> None:
    *_, (text, plan) = generated(version, spec_number + 1, sizes=True)
    try:
        allocates(version, plan)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{text}") from error


@pytest.mark.parametrize("name", sorted(path.name for path in SITES.iterdir()))
@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_of_an_imported_site_are_allocated(version: str, name: str) -> None:
    found = import_files([SITES / name], version=version)
    plan = resolve(inspect_text(found.text, "x.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    allocates(version, plan)


def allocates(version: str, plan: SlurmPlan) -> None:
    """Submit every job to every pool of every partition."""
    bare = replace(plan, slurm=replace(plan.slurm, accounting=None, preemption=None, containers=None))
    bare = replace(
        bare, partitions=tuple(replace(p, qos=None, accounts=(), allow_qos=()) for p in bare.partitions)
    )
    refused, taken = list[str](), 0
    with RealSlurm(version, bare, nodes=bare.aws is None) as slurm:
        lines = partition_lines(slurm)
        for group in sorted(
            {one for line in lines.values() for one in line.get("AllowGroups", "").split(",") if one}
        ):
            slurm.must("groupadd", "--force", group)
            slurm.must("usermod", "--append", "--groups", group, USER)
        slurm.start_controller()
        for pool in bare.pools:
            open_to = [
                p for p in bare.partitions if pool.name in p.pools and lines[p.name].get("State") != "DOWN"
            ]
            nodes = ready(slurm, pool)
            wanted = [
                (p.name, job)
                for p in open_to
                for job in jobs(p, pool.shape, int(lines[p.name].get("DefMemPerGPU", "0")))
            ]
            for some in batched(wanted, len(nodes)):
                found = allocated(slurm, [(node, *one) for node, one in zip(nodes, some, strict=False)])
                taken += len(some) - len(found)
                refused += found
    assert not refused, "\n".join(refused)
    assert taken


def partition_lines(slurm: RealSlurm) -> dict[str, dict[str, str]]:
    """Return the keys of each partition in slurm.conf, with those of the whole cluster."""
    words = [line.split() for line in slurm.path("/etc/slurm/slurm.conf").read_text().splitlines() if line]
    cluster = dict(line[0].split("=", 1) for line in words if len(line) == 1 and "=" in line[0])
    keys = (dict(one.split("=", 1) for one in line if "=" in one) for line in words)
    return {line["PartitionName"]: {**cluster, **line} for line in keys if "PartitionName" in line}


def batched(wanted: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (wanted[start : start + size] for start in range(0, len(wanted), size))


def ready(slurm: RealSlurm, pool: Pool) -> tuple[str, ...]:
    """Return the first nodes of the pool; hosts have their slurmds."""
    nodes = tuple(islice(chain.from_iterable(pool.slots), AT_ONCE))
    if slurm.plan.aws is None:
        for one in gres.slices(pool.shape):
            for path in one.files[1:]:
                slurm.write(path, "")
        slurm.start_nodes(*nodes)
        argv = ("sinfo", "-h", "-N", "-n", ",".join(nodes), "-o", "%t")
        slurm.wait(lambda: set(slurm.must(*argv).split()) == {"idle"}, f"{nodes} are idle")
    return nodes


def allocated(slurm: RealSlurm, wanted: Sequence[tuple[str, str, Job]]) -> list[str]:
    """Submit each job to its node and partition, and end it again. Return those that were not allocated, and why."""
    refused, waiting = list[str](), dict[str, str]()
    for node, partition, job in wanted:
        words = f"{partition} on {node}: {job.what} ({' '.join(job.options)})"
        place = (f"--partition={partition}", f"--nodelist={node}", "--nodes=1", "--time=5")
        argv = ("sbatch", "--parsable", "--output=/dev/null", *place, *job.options, "--wrap=sleep 300")
        done = slurm.run(*argv, user=USER)
        if done.code:
            refused.append(f"{words}: {done.err.strip()}")
        else:
            waiting[done.out.strip()] = words

    def started() -> bool:
        shown = {row["JobId"]: row["JobState"] for row in slurm.show("jobs")}
        return all(shown[number] in STARTED for number in waiting)

    try:
        slurm.wait(started, "the jobs are allocated", within=ALLOCATES_S)
    except AssertionError:
        rows = [
            row for row in slurm.show("jobs") if row["JobId"] in waiting and row["JobState"] not in STARTED
        ]
        refused += [f"{waiting[row['JobId']]}: {row['JobState']} ({row['Reason']})" for row in rows]
    if waiting:
        slurm.must("scancel", *waiting)
        slurm.wait(lambda: not slurm.must("squeue", "-h", "-o", "%i").split(), "the jobs have ended")
    return refused

"""A job that asks for no size fits: slurmctld allocates it on every pool of every partition, also with `extra`.

Each stack, generated specs and each imported site, on the files as they are rendered. The database is left out, because limits
of a user are no sizes. A host has its slurmd; a node of a cloud is allocated before it boots.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

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
GENERATED = 30  # of each version
ALLOCATES_S = 30.0
STARTED = {"CONFIGURING", "RUNNING"}


@dataclass(frozen=True)
class Job:
    """A job for one node of a pool, as a user submits it."""

    what: str
    options: tuple[str, ...]


def jobs(partition: Partition, shape: NodeShape) -> Iterator[Job]:
    """Return the jobs that every node of the partition must take.

    Where a partition limits the CPUs of a node, no job has the whole node (S16).
    """
    one, every = _gpus(shape, all_of_it=False), _gpus(shape, all_of_it=True)
    needed = one if partition.requires_gpus else ()
    yield Job("a default job", needed)
    cpus = min(shape.job_cpus, partition.max_cpus_per_node or shape.job_cpus)
    yield Job("the default memory on all CPUs", (*needed, "--ntasks=1", f"--cpus-per-task={cpus}"))
    if partition.max_cpus_per_node is None:
        yield Job("a whole node", (*needed, "--exclusive"))
    if every:
        yield Job("all GPUs", every)
    if isinstance(shape.sharing, Mig):
        for part in shape.sharing.slices:
            yield Job(f"a slice {part.profile}", (f"--gres=gpu:{part.profile}:1",))


def _gpus(shape: NodeShape, *, all_of_it: bool) -> tuple[str, ...]:
    if not shape.gpu_count:
        return ()
    if isinstance(shape.sharing, Mig):
        parts = shape.sharing.slices if all_of_it else shape.sharing.slices[:1]
        counts = (f"gpu:{p.profile}:{p.count * shape.gpu_count if all_of_it else 1}" for p in parts)
        return (f"--gres={','.join(counts)}",)
    return (f"--gres=gpu:{shape.gpu_count if all_of_it else 1}",)


@pytest.mark.parametrize("name", sorted(stacks()))
@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_of_a_stack_are_allocated(version: str, name: str) -> None:
    allocates(version, stacks()[name])


@pytest.mark.parametrize("number", range(GENERATED))
@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_of_a_generated_spec_are_allocated(version: str, number: int) -> None:
    text, plan = list(generated(version, GENERATED, sizes=True))[number]
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
    bare = replace(plan, slurm=replace(plan.slurm, accounting=None, preemption=None))
    bare = replace(
        bare, partitions=tuple(replace(p, qos=None, accounts=(), allow_qos=()) for p in bare.partitions)
    )
    refused, taken = list[str](), 0
    with RealSlurm(version, bare, nodes=bare.aws is None) as slurm:
        slurm.start_controller()
        for pool in bare.pools:
            node = ready(slurm, pool)
            for partition in bare.partitions:
                if pool.name not in partition.pools:
                    continue
                for job in jobs(partition, pool.shape):
                    said = submitted(slurm, partition.name, node, job)
                    taken += not said
                    refused += (
                        [f"{partition.name} on {node}: {job.what} ({' '.join(job.options)}): {said}"]
                        if said
                        else []
                    )
    assert taken
    assert not refused, "\n".join(refused)


def ready(slurm: RealSlurm, pool: Pool) -> str:
    """Return the first node of the pool; a host has its slurmd."""
    node = next(iter(pool.slots[0]))
    if slurm.plan.aws is None:
        for one in gres.slices(pool.shape):
            for path in one.files[1:]:
                slurm.write(path, "")
        slurm.start_nodes(node)
        slurm.wait(
            lambda: slurm.must("sinfo", "-h", "-n", node, "-o", "%t").split()[:1] == ["idle"],
            f"{node} is idle",
        )
    return node


def submitted(slurm: RealSlurm, partition: str, node: str, job: Job) -> str:
    """Submit the job, and end it again. Return why it was not allocated; empty if it was."""
    words = (
        "sbatch",
        "--parsable",
        f"--partition={partition}",
        f"--nodelist={node}",
        "--nodes=1",
        "--time=5",
        "--output=/dev/null",
    )
    done = slurm.run(*words, *job.options, "--wrap=sleep 300", user=USER)
    if done.code:
        return done.err.strip()
    number = done.out.strip()
    shown: list[dict[str, str]] = []

    def state() -> bool:
        shown[:] = slurm.show("job", number)
        return shown[0]["JobState"] in STARTED

    try:
        slurm.wait(state, job.what, within=ALLOCATES_S)
    except AssertionError:
        return f"{shown[0]['JobState']} ({shown[0]['Reason']})"
    finally:
        slurm.must("scancel", number)
        slurm.wait(lambda: not slurm.must("squeue", "-h", "-o", "%i").split(), f"job {number} has ended")
    return ""

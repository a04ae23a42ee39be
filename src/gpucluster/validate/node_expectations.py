"""The plan's nodes as values that checks compare with. Pure."""

import hashlib

from gpucluster.checks import hardware, slurmctld
from gpucluster.plan import names
from gpucluster.plan.model import Nvme, Pool, SlurmOnAws, SlurmPlan
from gpucluster.slurm import observed_switches


def nodes(plan: SlurmPlan) -> slurmctld.Nodes:
    always_on = tuple(node for pool in plan.pools for node in pool.always_on())
    elastic = tuple(n for pool in plan.pools for n in pool.node_names if n not in always_on)
    return slurmctld.Nodes(elastic=elastic, always_on=always_on)


def board(pool: Pool) -> hardware.Board:
    shape = pool.shape
    return hardware.Board(
        cpus=shape.cpus,
        sockets=shape.sockets,
        cores=shape.cores_per_socket,
        threads=shape.threads_per_core,
        memory_mib=shape.real_memory_mib,
    )


def slurm_files(plan: SlurmPlan, folder: str, *, on_head: bool) -> dict[str, str]:
    """The digest of each of Slurm's files. slurmctld hands the nodes all but the script of submissions.

    topology.conf is left out where the head may divide a leaf by the switches that EC2 reports; `topo.place` checks the leaves.
    """
    from gpucluster.slurm.config.render import JOB_SUBMIT, render  # noqa: PLC0415  it imports jinja2, which other commands do not need

    below = f"{names.SLURM_DIR}/"
    left_out = {f"{below}topology.conf"} if may_be_divided(plan) else set[str]()
    if not on_head:
        left_out.add(f"{below}{JOB_SUBMIT}")
    found = (a for a in render(plan) if a.path.startswith(below) and a.path not in left_out)
    return {f"{folder}/{a.path.removeprefix(below)}": _sha256(a.content) for a in found}


def may_be_divided(plan: SlurmPlan) -> bool:
    """Whether a leaf has two machines that stay: the daemon asks EC2 for the switches above them."""
    if not isinstance(plan, SlurmOnAws):
        return False
    stay = set(observed_switches.observed_slots(plan))
    return any(len(stay & {slot for span in leaf.slots for slot in span}) > 1 for leaf in plan.leaves)


def scratch(plan: SlurmPlan) -> tuple[str, ...]:
    """The paths of a machine's own disks, or of the folders in their place."""
    return tuple(mount.path for mount in plan.storage if isinstance(mount.source, Nvme))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

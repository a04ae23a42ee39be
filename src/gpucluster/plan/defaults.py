"""Every default of a plan with its reason: the only place where they are decided.

`plan --explain` prints these rows; nothing else in the code holds such a number.
"""

from dataclasses import dataclass

from gpucluster.plan.model import Times


@dataclass(frozen=True, slots=True)
class Default:
    """A value that no person wished, and why it is so."""

    value: float
    reason: str


IDLE_S = Default(600, "long enough for the next job of a batch to find the node up")
BOOT_TIMEOUT_S = Default(1200, "an eight-GPU machine takes up to a quarter of an hour from launch to slurmd")
MEMORY_PERCENT = Default(
    95,
    "firmware, kernel and hypervisor take part of the nameplate; a node that shows less than its line is drained",
)

IMAGE_OS = "ubuntu-24.04"
IMAGE_OS_REASON = "AWS builds its Lustre client, EFA and the GPU stack for it"

NAT = "one"
NAT_REASON = "machines have no public address; a gateway a zone costs as much again, and with the first zone the head goes, too"
ROOT_GIB = Default(100, "room for the GPU stack, the layers of containers and what jobs leave in /tmp")
LUSTRE_THROUGHPUT = Default(125, "the least that FSx sells of a file system that lasts")

FAREWELL_SIGNAL = "USR1"
FAREWELL_SIGNAL_REASON = "what batch scripts trap by custom; one that does not trap it ends, and is requeued"
FAREWELL_LEAD_S = Default(
    20, "the requeue must be through before the machine goes; the job has the rest of a notice of two minutes"
)
FAREWELL_GRACE_S = Default(
    90, "a broken GPU sets no end: about as long as a spot notice leaves, so one checkpoint fits both"
)
BREAKER_BOOTS = Default(
    6, "so many failed boots in a row are the image's or the site's fault, not the machines'"
)
BREAKER_COOLDOWN_S = Default(
    900, "one more try each quarter of an hour costs little, and finds out when it was mended"
)
BUDGET_WARN_PERCENT = Default(80, "early enough in the month to act")
BUDGET_STOP_PERCENT = Default(
    100, "the budget itself: nothing is launched beyond it, and no running job is ended"
)

SUSPEND_TIMEOUT_S = Default(
    120, "an ending instance is gone within two minutes; its node is not allocated before"
)
CRED_EXPIRE_S = Default(
    60, "a requeued job may start again after this and a second; Slurm's own 120 s cost a minute"
)
POLL_S = Default(2, "the daemon's look at Slurm and the cloud while something is under way")
RECONCILE_S = Default(60, "the same when all is quiet; spool and notices come by event")
HEARTBEAT_S = Default(10, "a node's word to the daemon")
ORPHAN_GRACE_S = Default(
    300, "an instance that no request owns may still be claimed: a requeued job asks again in a minute"
)
REFUSAL_S = Default(120, "a refusal is remembered so long at first, then doubled")
REFUSAL_MAX_S = Default(1800, "capacity comes back by the half hour; asking more seldom would miss it")
LEASE_S = Default(
    30, "a standby takes over so long after the daemon's last sign; long beside a slow answer of the bucket"
)
STORM_S = Default(
    600,
    "machines of one kind and zone that are taken back within this are one storm; the next source is tried meanwhile",
)
PROLOG_S = Default(300, "longer than any Prolog may take; after it the start is taken as lost")
SELF_END_S = Default(
    1800, "a node without a controller for so long ends itself; a controller's restart is far shorter"
)
SELF_END_MARGIN_S = Default(
    600, "a node outlives its boot timeout by this, so that the daemon ends it and says why"
)

# What only Slurm's files show.
RESUME_MARGIN_S = Default(
    60, "Slurm waits longer than the pool: the daemon ends a failed boot first, and says why"
)
LAUNCHED_AT_ONCE = Default(1000, "EC2's bucket of instances for an account that nobody raised it for")
LAUNCHED_A_SECOND = Default(2, "its refill: what a larger burst waits for, which is no part of a boot")
SUSPEND_BACKSTOP_S = Default(
    1800, "the daemon ends idle nodes; this lets Slurm do it if the daemon is away for long"
)
NODE_REG_MEM_PERCENT = Default(
    90, "Slurm's own tolerance for a cloud node that shows less memory than its line"
)


def times(longest_boot_s: int) -> Times:
    """The waiting times of a cluster on AWS."""
    return Times(
        suspend_timeout_s=int(SUSPEND_TIMEOUT_S.value),
        cred_expire_s=int(CRED_EXPIRE_S.value),
        poll_s=float(POLL_S.value),
        reconcile_s=float(RECONCILE_S.value),
        heartbeat_s=float(HEARTBEAT_S.value),
        orphan_grace_s=float(ORPHAN_GRACE_S.value),
        refusal_s=float(REFUSAL_S.value),
        refusal_max_s=float(REFUSAL_MAX_S.value),
        lease_s=float(LEASE_S.value),
        storm_s=float(STORM_S.value),
        prolog_s=float(PROLOG_S.value),
        self_end_s=float(max(SELF_END_S.value, longest_boot_s + SELF_END_MARGIN_S.value)),
    )

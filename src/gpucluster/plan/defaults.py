"""Every default of a plan with its reason. No other module decides a default.

`plan --explain` prints these rows. No other code contains such a number.
"""

from dataclasses import dataclass

from gpucluster.plan import model
from gpucluster.text import format_duration


@dataclass(frozen=True, slots=True)
class Default:
    """A default value and its reason."""

    value: float
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A value that the plan decided, its place in the plan, and the reason. `plan --explain` prints it."""

    path: str
    value: str
    reason: str


def of_default(path: str, seconds: float, rule: Default) -> Note:
    """The note of a default time."""
    return Note(path, format_duration(seconds), rule.reason)


IDLE_S = Default(600, "the next job of a batch usually starts within this time and uses the same node")
DEFAULT_TIME_S = Default(
    3600,
    "a job without --time ends then. Without a default it would have the whole max_time, and backfill could start no job before it",
)
BOOT_TIMEOUT_S = Default(
    1200,
    "a machine with eight GPUs takes up to a quarter of an hour from launch to slurmd; a smaller one takes less",
)
BOOT_SCRIPT_S = Default(600, "a boot script that takes longer is ended, and the boot has failed")
MEMORY_PERCENT = Default(
    95,
    "firmware, kernel and hypervisor use the rest. Slurm drains a node that registers too little memory",
)

IMAGE_OS = "ubuntu-24.04"
IMAGE_OS_REASON = "AWS builds its Lustre client, EFA and the GPU stack for this Ubuntu"

NAT = "one"
NAT_REASON = "nodes have no public address. One gateway is enough: without its zone the head is lost, too, and each more gateway costs the same again"
ROOT_GIB = Default(100, "for the GPU stack, layers of containers and files of jobs in /tmp")
LUSTRE_THROUGHPUT = Default(125, "the lowest throughput that FSx offers for a persistent file system")

TERMINATION_SIGNAL = "USR1"
TERMINATION_SIGNAL_REASON = (
    "batch scripts usually trap this signal. A script without a trap ends and is requeued"
)
TERMINATION_LEAD_S = Default(
    20,
    "time for the requeue before the instance ends. A spot notice comes 2 minutes before, so the job has 100 s",
)
TERMINATION_GRACE_S = Default(
    90,
    "the time for a checkpoint after the failure of a GPU, which has no fixed end: about as long as after a spot notice",
)
BREAKER_BOOTS = Default(
    6, "so many failed boots in a row have one common cause: the image or the site, not single machines"
)
BREAKER_COOLDOWN_S = Default(
    900, "one more try each 15 minutes costs little, and shows when the cause is repaired"
)
BUDGET_WARN_PERCENT = Default(80, "early enough in the month to act")
BUDGET_STOP_PERCENT = Default(100, "above the budget nothing is launched, and running jobs continue")

HEALTH_EVERY_S = Default(
    300, "a fault is found before most jobs start, and a run takes a second or two of one core"
)
HEALTH_AT_MOST_PERCENT = Default(
    10,
    "of the pool, and at least one node. More failures at one time have a common cause, for example a driver: the other nodes go on",
)

SUSPEND_TIMEOUT_S = Default(
    120, "an instance is terminated within two minutes. Slurm does not allocate its node earlier"
)
CRED_EXPIRE_S = Default(
    60,
    "Slurm starts a requeued job only after this time and a second. Its default of 120 s would add a minute",
)
POLL_S = Default(
    2, "how often the daemon reads Slurm and the cloud while launches, boots or terminations are in progress"
)
RECONCILE_S = Default(
    60, "the same when nothing is in progress. Hook calls and notices wake the daemon earlier"
)
HEARTBEAT_S = Default(10, "how often the agent of a node reports to the daemon")
ORPHAN_GRACE_S = Default(
    300,
    "a requeued job can still take an instance without a request: it requests nodes again within a minute",
)
REFUSAL_S = Default(120, "how long a first refusal counts. Each further refusal doubles the time")
REFUSAL_MAX_S = Default(1800, "capacity can return within half an hour; longer pauses would miss it")
LEASE_S = Default(
    30,
    "a standby takes over about this long after the last renewal: much longer than a slow answer of the bucket",
)
STORM_S = Default(
    600,
    "if many spot instances of one type and zone are reclaimed within this time, the daemon uses the next source",
)
PROLOG_S = Default(
    300, "longer than any Prolog takes. After it the daemon takes the start of the job as lost"
)
PROLOG_PROGRAM_S = (
    90  # each program of ours in Prolog and Epilog ends itself after this time; the longest takes 35 s
)
PROLOG_LIMIT_S = Default(
    120,
    "longer than gpucluster's own programs, and shorter than BatchStartTimeout, 180 s. After it slurmd ends a Prolog or Epilog, and the node is drained",
)
WAITER_MARGIN_S = Default(
    120,
    "the same limit holds for PrologSlurmctld, which waits until the job's nodes have booted: on AWS the limit of the Prolog is ResumeTimeout and this margin",
)
SELF_TERMINATION_S = Default(
    1800,
    "a node that reaches no slurmctld for this time shuts itself down. A restart of slurmctld is far shorter",
)
SELF_TERMINATION_MARGIN_S = Default(
    600,
    "the margin after the boot timeout, so that the daemon terminates the instance first and reports the reason",
)

# Accounting, and the order of jobs.
KEEP_S = Default(
    730 * 86400,
    "two years of job records. Older ones are written to an archive file and deleted from the database",
)
HALF_LIFE_S = Default(
    14 * 86400,
    "use of two weeks ago counts half: a team that used much last week still waits, one that did last month does not",
)
MAX_AGE_S = Default(
    7 * 86400, "the age of a job adds to its priority for a week, so no job waits without end"
)
WEIGHT_QOS = Default(
    1_000_000, "the largest weight: a QOS with the highest priority goes before fair-share and age together"
)
WEIGHT_FAIRSHARE = Default(
    100_000, "orders the jobs of one QOS by what their accounts have used of their shares"
)
WEIGHT_AGE = Default(
    10_000,
    "a tenth of fair-share: it orders the jobs of one account, and in a week lifts a job over a small difference in use",
)
GPU_BILLING = Default(
    1000,
    "one GPU is 1000 units of use, and a MIG slice its share of the compute. A job pays for the largest of its parts of a node's GPUs, CPUs and memory",
)

CPU_BILLING = Default(
    10, "a CPU of a node without GPUs is a hundredth of a GPU: about the ratio of their prices"
)
BUFFER_POOL_PERCENT = Default(
    12.5,
    "of the head's memory for the database's cache, between 2 and 4 GiB; slurmctld and the daemon need the rest",
)

# Defaults that appear only in Slurm's files.
SESSION_SHARE = Default(0.25, "four users fill a login machine, and one cannot")
SESSION_CPUS = Default(0.5, "one user leaves half of the CPUs to the others")
SESSION_TASKS = Default(2000, "a fork bomb ends here, an editor with its language servers does not")
RESUME_MARGIN_S = Default(
    60,
    "Slurm's ResumeTimeout is longer than `boot_timeout` by this margin: the daemon ends a failed boot first and reports the reason",
)
LAUNCHED_AT_ONCE = Default(1000, "EC2's default limit of instances that an account can launch at once")
LAUNCHED_A_SECOND = Default(
    2, "EC2's default rate after that. ResumeTimeout is longer by the wait of the largest burst"
)
SUSPEND_BACKSTOP_S = Default(
    1800,
    "Slurm's SuspendTime, longer than `idle` by this margin: Slurm powers down idle nodes only if the daemon does not",
)
SLURMD_TIMEOUT_S = Default(
    180, "slurmctld sets a node DOWN after this time without an answer. A lost spot instance is noticed soon"
)
SLURMD_TIMEOUT_OF_HOSTS_S = Default(
    300,
    "slurmctld sets a node DOWN after this time without an answer, and its jobs end. A host that is only busy answers within it",
)


def slurmd_timeout(plan: "model.SlurmPlan") -> Default:
    """SlurmdTimeout of the plan's slurm.conf."""
    return SLURMD_TIMEOUT_OF_HOSTS_S if plan.aws is None else SLURMD_TIMEOUT_S


WEIGHTS = {  # (has GPUs, is always on) -> Weight of the node
    (False, True): 1,
    (False, False): 2,
    (True, True): 3,
    (True, False): 4,
}
WEIGHTS_REASON = "Slurm uses nodes with a low Weight first: nodes without GPUs, then always-on nodes. A node that is up comes before one that is powered down"
NODE_REG_MEM_PERCENT = Default(
    90, "a cloud node may register with this share of the memory of its NodeName line"
)


def times(longest_boot_s: int) -> "model.Times":
    """The waiting times of a cluster on AWS."""
    return model.Times(
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
        self_termination_s=float(
            max(SELF_TERMINATION_S.value, longest_boot_s + SELF_TERMINATION_MARGIN_S.value)
        ),
    )

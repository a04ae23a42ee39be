"""What a key of `extra` needs beside it: another key, a field, or no other key of the same meaning.

Each row is a check of slurmctld's or slurmd's, with what the program does otherwise.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults
from gpucluster.plan.model.shapes import NodeShape
from gpucluster.slurm import sizes
from gpucluster.slurm.sizes import MOST, amount
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.pools import machines_of_aws, shape_of
from gpucluster.spec.problem import Path

UNKILLABLE_S = 180  # UnkillableStepTimeout of templates/slurm/slurm.conf.j2
MESSAGE_S = 30  # MessageTimeout of the same file
LAST_JOB_ID = 67043328  # MaxJobId, if it is not set
BF_MAX_JOB_TEST = 500  # if it is not set


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines that `extra` changes: those of slurm.conf, of a pool or of a partition."""

    spec: ClusterSpec
    catalog: Catalog
    kind: str
    at: Path

    def nodes(self) -> Iterator[tuple[Pool, NodeShape]]:
        """The hardware of a node of the pool, or of each pool of the partition; none of a pool whose machine is not known."""
        if self.kind == "slurm.conf":
            indexes = [index for index, _ in enumerate(self.spec.pools)]
        elif self.kind == "node":
            indexes = [int(self.at[1])]
        else:
            names = self.spec.partitions[int(self.at[1])].pools
            indexes = [index for index, pool in enumerate(self.spec.pools) if pool.name in names]
        for index in indexes:
            pool = self.spec.pools[index]
            if (shape := shape_of(self.spec, pool, self.catalog)) is not None:
                yield pool, shape

    def gpu_types(self) -> Iterator[str]:
        """The types of GPUs of the cluster, as TRES name them: models, and profiles of MIG slices."""
        for pool in self.spec.pools:
            own = self.spec.machines.get(pool.machine or "")
            gpus = [one.gpu.model for one in machines_of_aws(pool, self.catalog) if one.gpu is not None]
            gpus += [own.gpus.model] if own is not None and own.gpus is not None else []
            slices = pool.sharing.mig if pool.sharing is not None else None
            yield from (name.lower() for name in (slices if gpus and slices else gpus))

    def qos(self) -> frozenset[str]:
        return frozenset(one.name for one in self.spec.qos)


@dataclass(frozen=True, slots=True)
class Needs:
    """A key of `extra`, as written, and what it needs."""

    key: str
    what: str


@dataclass(frozen=True, slots=True)
class _Given:
    """`extra` with its keys in lower case."""

    lines: Lines
    values: Mapping[str, str]

    def number(self, key: str, otherwise: int) -> int:
        """`otherwise` for a key that is not given, and for a value that another rule reports."""
        return amount(self.values.get(key, ""), otherwise)


def missing(lines: Lines, extra: Mapping[str, str]) -> Iterator[Needs]:
    """Return what each key lacks."""
    given = _Given(lines, sizes.lowered(extra))
    written = {key.lower(): key for key in extra}
    for kind, key, rule in _RULES:
        if kind == lines.kind and key in given.values and (what := rule(given)):
            yield Needs(written[key], what)


_Rule = Callable[[_Given], str]


def _without(other: str, name: str) -> _Rule:
    """The two keys set one value; Slurm ignores one of them with an error."""
    return lambda given: f"{name} to be left out: Slurm takes one of the two" if other in given.values else ""


def _with(other: str, sentence: str) -> _Rule:
    return lambda given: "" if other in given.values else sentence


def _accounting(key: str) -> _Rule:
    def rule(given: _Given) -> str:
        if given.lines.spec.slurm is None or given.lines.spec.slurm.accounting is not None:
            return ""
        without = "`slurm.accounting`: without slurmdbd slurmctld ignores it with an error"
        return without if given.values[key].strip("0") else ""

    return rule


def _log_file(given: _Given) -> str:
    needed = given.values["slurmschedloglevel"].strip("0") and "slurmschedlogfile" not in given.values
    return "SlurmSchedLogFile: without it slurmctld does not start" if needed else ""


def _longer_kill(given: _Given) -> str:
    """MessageTimeout, or the timeout itself: 5 times the first is the least of the second."""
    least = 5 * given.number("messagetimeout", MESSAGE_S)
    if given.number("unkillablesteptimeout", UNKILLABLE_S) >= least:
        return ""
    return f"UnkillableStepTimeout: {least} or more: slurmctld reports a shorter one as an error"


def _shorter_wait(given: _Given) -> str:
    if "messagetimeout" in given.values:
        return ""  # reported there
    least = 5 * MESSAGE_S
    if given.number("unkillablesteptimeout", UNKILLABLE_S) >= least:
        return ""
    return f"a value of {least} or more, 5 times MessageTimeout: slurmctld reports a shorter one as an error"


def _reset(given: _Given) -> str:
    zero = not given.values["prioritydecayhalflife"].strip("0-:")
    needed = zero and "priorityusageresetperiod" not in given.values
    return "PriorityUsageResetPeriod: without a decay or a reset slurmctld does not start" if needed else ""


def _scheduler(given: _Given) -> str:
    parts = (word.lower().partition("=") for word in given.values["schedulerparameters"].split(","))
    words = {name: value for name, _, value in parts}
    if "bf_max_job_user" in words and "bf_max_job_assoc" in words:
        return "one of bf_max_job_user and bf_max_job_assoc: slurmctld ignores the first with an error"
    tested = amount(words.get("bf_max_job_test", ""), BF_MAX_JOB_TEST)
    if amount(words.get("bf_max_job_part", ""), 0) >= tested:
        return f"bf_max_job_part below bf_max_job_test, which is {tested}: slurmctld reports it as an error"
    half = given.number("messagetimeout", MESSAGE_S) // 2
    if amount(words.get("max_sched_time", ""), 0) > half:
        return f"max_sched_time of at most {half}, half of MessageTimeout: slurmctld ignores it with an error"
    return ""


def _group(given: _Given) -> str:
    needed = given.values["mcsplugin"].lower() == "mcs/group" and "mcsparameters" not in given.values
    return "MCSParameters: without it slurmctld does not start" if needed else ""


def _jwt(given: _Given) -> str:
    key = (
        "jwt_key=" in given.values.get("authaltparameters", "") or given.values["authalttypes"] != "auth/jwt"
    )
    return "" if key else "AuthAltParameters: {jwt_key: PATH}: without it slurmctld does not start"


def _below_last_id(given: _Given) -> str:
    last = given.number("maxjobid", LAST_JOB_ID)
    return "" if given.number("firstjobid", 1) <= last else f"MaxJobId above it, which is {last}"


def _sum_of_weights(given: _Given) -> str:
    accounting = given.lines.spec.slurm is not None and given.lines.spec.slurm.accounting is not None
    total = sum(given.number(key, ours if accounting else 0) for key, ours in _WEIGHTS.items())
    if total <= MOST:
        return ""
    return f"a sum of all PriorityWeight keys of at most {MOST}: above it the priority of a job overflows"


def _tres(key: str) -> _Rule:
    """A TRES of GPUs exists with slurmdbd only (assoc_mgr.c), and gpucluster names those of the spec's GPUs."""

    def rule(given: _Given) -> str:
        spec = given.lines.spec
        names = {word.partition("=")[0].lower() for word in given.values[key].split(",")}
        gpus = {name for name in names if name.startswith("gres/")}
        if not gpus:
            return ""
        if spec.slurm is None or spec.slurm.accounting is None:
            return f"`slurm.accounting` for {sorted(gpus)[0]}: without slurmdbd slurmctld does not know it and ends"
        known = {"gres/gpu", *(f"gres/gpu:{model}" for model in given.lines.gpu_types())}
        unknown = sorted(gpus - known)
        return f"a TRES of the spec instead of {unknown[0]}: {', '.join(sorted(known))}" if unknown else ""

    return rule


def _qos_of_spec(given: _Given) -> str:
    unknown = [word for word in given.values["denyqos"].split(",") if word not in given.lines.qos()]
    return f"a QOS {unknown[0]} in `qos`: slurmctld ignores the key with an error" if unknown else ""


def _memory_left(given: _Given) -> str:
    least = min((shape.real_memory_mib for _, shape in given.lines.nodes()), default=MOST)
    if given.number("memspeclimit", 0) < least:
        return ""
    return f"a value below the memory of the node, {least} MiB: slurmd ignores it with an error"


def _cores_left(given: _Given) -> str:
    least = min((_cores(shape) for _, shape in given.lines.nodes()), default=MOST)
    if given.number("corespeccount", 0) < least:
        return ""
    return f"a value below the {least} cores of the node: no job could run there"


def _cpus_of_node(given: _Given) -> str:
    ids = set(sizes.cpu_ids(given.values["cpuspeclist"]))
    for _, shape in given.lines.nodes():
        if max(ids, default=0) >= shape.cpus:
            return f"CPU ids below {shape.cpus}: slurmd ignores the list with an error"
        if len({cpu // shape.threads_per_core for cpu in ids}) >= _cores(shape):
            return f"fewer CPUs: no core of the {_cores(shape)} would be left for jobs"
    return ""


def _cores(shape: NodeShape) -> int:
    return shape.sockets * shape.cores_per_socket


def _fits(key: str) -> _Rule:
    """A default memory with which a job without --mem fits on a node of each of the partition's pools, on all CPUs if it is of a CPU."""

    def rule(given: _Given) -> str:
        for pool, shape in given.lines.nodes():
            cpus = max(1, shape.job_cpus) if key == "defmempercpu" else 1
            most = shape.job_memory_mib // cpus
            if given.number(key, 0) > most:
                on = f" on all its {cpus} CPUs" if cpus > 1 else ""
                return f"a value of at most {most}: of a node of the pool {pool.name} jobs get {shape.job_memory_mib} MiB, and a job{on} without --mem could not run there"
        return ""

    return rule


def _fits_all_gpus(given: _Given) -> str:
    """A default memory with which a job for all GPUs fits on a node of one of the pools. A site may have it for one of its kinds."""
    most = {
        pool.name: shape.job_memory_mib // gpus
        for pool, shape in given.lines.nodes()
        if (gpus := _gpus(pool, shape))
    }
    if not most or given.number("defmempergpu", 0) <= max(most.values()):
        return ""
    name = max(most, key=lambda one: most[one])
    return f"a value of at most {most[name]}: on no node a job for all GPUs without --mem-per-gpu could run, also not in the pool {name}"


def _gpus(pool: Pool, shape: NodeShape) -> int:
    """The GPUs of a node as jobs ask for them: MIG slices are GPUs."""
    slices = pool.sharing.mig if pool.sharing is not None else None
    return shape.gpu_count * sum(slices.values()) if slices else shape.gpu_count


_WEIGHTS = {
    "priorityweightage": int(defaults.WEIGHT_AGE.value),
    "priorityweightassoc": 0,
    "priorityweightfairshare": int(defaults.WEIGHT_FAIRSHARE.value),
    "priorityweightjobsize": 0,
    "priorityweightpartition": 0,
    "priorityweightqos": int(defaults.WEIGHT_QOS.value),
}
_RULES: tuple[tuple[str, str, _Rule], ...] = (
    ("slurm.conf", "priorityweightage", _accounting("priorityweightage")),
    ("slurm.conf", "priorityweightfairshare", _accounting("priorityweightfairshare")),
    *(("slurm.conf", key, _sum_of_weights) for key in _WEIGHTS),
    ("slurm.conf", "priorityweighttres", _tres("priorityweighttres")),
    ("partition", "tresbillingweights", _tres("tresbillingweights")),
    ("node", "tresweights", _tres("tresweights")),
    ("slurm.conf", "slurmschedloglevel", _log_file),
    ("slurm.conf", "messagetimeout", _longer_kill),
    ("slurm.conf", "unkillablesteptimeout", _shorter_wait),
    ("slurm.conf", "prioritydecayhalflife", _reset),
    ("slurm.conf", "schedulerparameters", _scheduler),
    ("slurm.conf", "defmempernode", _without("defmempercpu", "DefMemPerCPU")),
    ("slurm.conf", "maxmempernode", _without("maxmempercpu", "MaxMemPerCPU")),
    ("slurm.conf", "mcsparameters", _with("mcsplugin", "MCSPlugin: without it slurmctld does not start")),
    ("slurm.conf", "mcsplugin", _group),
    ("slurm.conf", "authalttypes", _jwt),
    ("slurm.conf", "firstjobid", _below_last_id),
    ("partition", "denyqos", _qos_of_spec),
    ("node", "memspeclimit", _memory_left),
    ("node", "cpuspeclist", _cpus_of_node),
    ("partition", "defmempernode", _without("defmempercpu", "DefMemPerCPU")),
    ("partition", "maxmempernode", _without("maxmempercpu", "MaxMemPerCPU")),
    ("partition", "exclusivetopo", _without("exclusiveuser", "ExclusiveUser")),
    ("node", "corespeccount", _without("cpuspeclist", "CPUSpecList")),
    ("node", "corespeccount", _cores_left),
    ("partition", "defmempernode", _fits("defmempernode")),
    ("partition", "defmempercpu", _fits("defmempercpu")),
    ("slurm.conf", "defmempernode", _fits("defmempernode")),
    ("slurm.conf", "defmempercpu", _fits("defmempercpu")),
    ("partition", "defmempergpu", _fits_all_gpus),
    ("slurm.conf", "defmempergpu", _fits_all_gpus),
)

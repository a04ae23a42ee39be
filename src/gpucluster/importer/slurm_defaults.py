"""Slurm's own values of keys that the rendered files may lack: a site that writes one of them loses nothing.

tests/slurm/test_slurm_defaults.py asks slurmctld of both versions for those of slurm.conf and of partitions; those of cgroup.conf
are cgroup.conf(5)'s. Keys that `extra` takes need no row.
"""

from collections.abc import Callable, Mapping

from gpucluster.importer import keys

NO_PLUGIN = "none"  # how the name of a plugin ends that does nothing; slurmctld shows none
DEFAULTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # kind -> key -> its values, in lower case
    "slurm.conf": {
        "accountingstorageenforce": ("none",), "accountingstoragetype": ("accounting_storage/none",),
        "acctgatherenergytype": ("acct_gather_energy/none",), "acctgatherfilesystemtype": ("acct_gather_filesystem/none",),
        "acctgatherinterconnecttype": ("acct_gather_interconnect/none",), "acctgatherprofiletype": ("acct_gather_profile/none",),
        "bcastexclude": ("/lib,/usr/lib,/lib64,/usr/lib64",), "burstbuffertype": ("burst_buffer/none",),
        "debugflags": ("none",), "hashplugin": ("hash/k12",), "healthcheckinterval": ("0",), "healthchecknodestate": ("any",),
        "jobacctgathertype": ("jobacct_gather/none",), "mcsplugin": ("mcs/none",), "mpidefault": ("none",),
        "namespacetype": ("job_container/none", "namespace/none"), "preemptexempttime": ("00:00:00", "0"), "preemptmode": ("off",),
        "preempttype": ("preempt/none",), "prepplugins": ("prep/script",), "prioritytype": ("priority/multifactor",),
        "resumerate": ("300",), "slurmduser": ("root",), "suspendrate": ("60",), "suspendtime": ("infinite", "-1"),
        "suspendtimeout": ("30",), "switchtype": ("switch/none",), "tlstype": ("tls/none",),
        "topologyplugin": ("topology/default", "topology/flat"),
    },
    "node": {"port": ("6818",)},
    "partition": {
        "allowaccounts": ("all",), "allowqos": ("all",), "maxcpuspernode": ("unlimited",), "oversubscribe": ("no",),
        "powerdownonidle": ("no",), "prioritytier": ("1",), "selecttypeparameters": ("none",),
    },
    "cgroup.conf": {
        "allowedramspace": ("100",), "allowedswapspace": ("0",), "cgroupmountpoint": ("/sys/fs/cgroup",), "enablecontrollers": ("no",),
        "ignoresystemd": ("no",), "ignoresystemdonfailure": ("no",), "maxrampercent": ("100",), "maxswappercent": ("100",),
        "minramspace": ("30",), "signalchildrenprocesses": ("no",), "systemdtimeout": ("1000",),
    },
}  # fmt: skip


def is_default(kind: str, key: str, value: str) -> bool:
    """Whether Slurm has this value without the key."""
    return value.lower() in DEFAULTS.get(kind, {}).get(key, ())


def seen_by_jobs(kind: str, key: str, value: str) -> tuple[str, str] | None:
    """Slurm's own value of a key that the site does not set, and what a job sees of ours; None if they do the same."""
    slurms, of_jobs = SEEN.get(kind, {}).get(key, (value, _nothing))
    return None if keys.same(kind, key, slurms, value) else (slurms, of_jobs(value))


def _nothing(_value: str) -> str:
    return ""


def _of_gpu(value: str) -> str:
    """S16."""
    return f"a job without -c gets {value} CPUs for each GPU, and got one core for each task"


def _requeued(value: str) -> str:
    """S06."""
    return f"a requeued job begins after {int(value.rpartition('=')[2]) + 1} s, and began after 121 s"


def _of_number(text: str) -> Callable[[str], str]:
    return text.format


def _always(text: str) -> Callable[[str], str]:
    return lambda _value: text


# tests/recorded/checks has Slurm's values of priorities and billing; AuthInfo, DefCpuPerGPU, DefMemPerCPU and PropagateResourceLimitsExcept:
# S06, S16, S19; the others: slurm.conf(5) and cgroup.conf(5).
SEEN: Mapping[str, Mapping[str, tuple[str, Callable[[str], str]]]] = {  # kind -> key -> Slurm's own value, what jobs see
    "slurm.conf": {
        "authinfo": ("cred_expire=120", _requeued),
        "batchstarttimeout": ("10", _of_number("a batch job has {} s to launch before Slurm gives up its nodes, and had 10 s")),
        "launchparameters": ("none", _always("salloc begins its shell on the first node of the job, and did where it was typed")),
        "maxarraysize": ("1001", lambda value: f"the indices of an array end at {int(value) - 1}, and ended at 1000"),
        "maxjobcount": ("10000", _of_number("slurmctld knows {} jobs at once, and refused those above 10000")),
        "prioritydecayhalflife": ("7-00:00:00", _always("after this time use counts half in the priority of the next jobs")),
        "priorityflags": ("none", _always("a job is billed for the largest of its weighted parts of a node, not for their sum")),
        "priorityweightage": ("0", _always("the time that a job waits counts in its priority")),
        "priorityweightfairshare": ("0", _always("what its account has used counts in the priority of a job")),
        "priorityweightqos": ("0", _always("the QOS of a job counts in its priority")),
        "prologflags": ("none", _always("a job has a step `extern` on each of its nodes, and Prolog runs there before its first step")),
        "propagateresourcelimitsexcept": ("none", _always("a job has these limits from slurmd, and had those of the shell that submitted it")),
        "unkillablesteptimeout": ("60", _of_number("a node drains {} s after processes of a step do not end, and did after 60 s")),
    },
    "cgroup.conf": {"constraincores": ("no", _always("a job runs on its own cores only, and could use each core of its nodes"))},
    "partition": {
        "defcpupergpu": ("none", _of_gpu),
        "defmempercpu": ("0", _always("a job that asks for no memory has so many MiB for each CPU, and had no such limit")),
        "tresbillingweights": ("none", _always("a job is billed by these weights, and was by its CPUs")),
    },
}  # fmt: skip

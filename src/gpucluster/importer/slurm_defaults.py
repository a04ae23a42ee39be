"""Slurm's own values of keys that the rendered files may lack: a site that writes one of them loses nothing.

tests/slurm/test_slurm_defaults.py asks slurmctld of both versions for those of slurm.conf and of partitions; those of cgroup.conf
are cgroup.conf(5)'s. Keys that `extra` takes need no row.
"""

from collections.abc import Mapping

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
        "prioritytier": ("1",), "selecttypeparameters": ("none",),
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

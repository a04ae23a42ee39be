"""Keys of slurm.conf that gpucluster writes: who sets each, and which of them a spec may change.

Three kinds. OWNED: the value follows from a field of the spec or from how the machines are built; `extra` and `remove` are refused.
DEFAULTS: a value of ours that a site may replace or leave out. LISTS: words of ours to which a site adds its own. REMOVED: keys that no version takes.
A test holds the tables to the rendered files.
"""

from collections.abc import Mapping

_PORTS = "the security groups and the agents know this port"
_UNITS = "the units and the image have this path or user"
_GROUPS = "the GPUs of a job are its own only with this value"
_HEAD = "the field `head`"
_SHARE = "the field `exclusive`; jobs that share cores (FORCE, YES) have no field"
_OWN_FILE = "its plugin reads a file or a program of its own, which gpucluster does not write"
_JWT = "it needs auth/jwt, which the image does not have"
_NODE = "the field `machine` or `capacity[].machines` of the pool"
POWER = "the fields `idle` and `boot_timeout` of the pools"
_ACCOUNTING = "the field `slurm.accounting`"
_HEALTH = "the field `health`"
_PROLOG_LIMIT = "gpucluster's own programs end earlier, and on AWS PrologSlurmctld waits for a boot"

OWNED: Mapping[str, Mapping[str, str]] = {  # kind -> key in lower case -> what to use instead, or why not
    "slurm.conf": {
        "clustername": "the field `name`", "slurmctldhost": _HEAD, "slurmctldport": _PORTS,
        "controlmachine": _HEAD, "controladdr": _HEAD, "backupcontroller": _HEAD, "backupaddr": _HEAD,
        "slurmctldaddr": _HEAD, "plugindir": _UNITS, "cryptotype": "the head makes munge's key",
        "burstbuffertype": _OWN_FILE, "burstbufferparameters": _OWN_FILE, "nodefeaturesplugins": _OWN_FILE,
        "certgentype": _OWN_FILE, "certgenparameters": _OWN_FILE, "certmgrtype": _OWN_FILE, "certmgrparameters": _OWN_FILE,
        "slurmctldhttpauthparameters": _JWT, "slurmdhttpauthparameters": _JWT,
        "maxnodecount": "the nodes are those of the field `pools`; it is for nodes that register themselves",
        "slurmdport": _PORTS, "srunportrange": _PORTS, "slurmuser": _UNITS, "slurmduser": _UNITS,
        "authtype": "the head makes munge's key", "credtype": "the head makes munge's key",
        "authinfo": "a requeued job waits for this time, and the daemon knows it",
        "statesavelocation": "the field `head.state`", "slurmdspooldir": _UNITS, "slurmctldpidfile": _UNITS,
        "slurmdpidfile": _UNITS, "slurmctldlogfile": _UNITS, "slurmdlogfile": _UNITS,
        "prolog": _HEALTH, "epilog": _HEALTH, "prologslurmctld": "the elastic daemon's waiter",
        "prologflags": "Alloc and Contain are for the GPUs of a job and for its checks; X11 and others have no field", "taskprolog": "the restarts of a job, and the fields `aws.jobs` and `sharing.mps`", "healthcheckprogram": _HEALTH,
        "prologepilogtimeout": _PROLOG_LIMIT, "prologtimeout": _PROLOG_LIMIT, "epilogtimeout": _PROLOG_LIMIT,
        "healthcheckinterval": _HEALTH, "healthchecknodestate": _HEALTH,
        "jobcontainertype": "the field `slurm.private_tmp`", "namespacetype": "the field `slurm.private_tmp`",
        "proctracktype": _GROUPS, "taskplugin": _GROUPS, "returntoservice": "the daemon's table of node states",
        "rebootprogram": "/sbin/reboot of the node, on hosts and on AWS",
        "schedulertype": "the daemon reads the plans of sched/backfill",
        "selecttype": _GROUPS, "selecttypeparameters": "jobs get cores and memory by the plan's shapes; CR_ONE_TASK_PER_CORE and others have no field",
        "grestypes": "the fields `machine` and `sharing` of the pools",
        "topologyplugin": "the field `slurm.topology`", "jobrequeue": "the field `slurm.requeue`",
        "licenses": "the field `slurm.licenses`", "jobsubmitplugins": "the field `partitions[].requires_gpus`",
        "accountingstoragetype": _ACCOUNTING, "accountingstoragehost": _ACCOUNTING, "accountingstoragebackuphost": _ACCOUNTING,
        "accountingstorageport": _ACCOUNTING, "accountingstoragetres": _ACCOUNTING,
        "accountingstorageenforce": _ACCOUNTING, "accountingstoragepass": _ACCOUNTING,
        "accountingstorageuser": _ACCOUNTING,
        "jobcomptype": _ACCOUNTING, "jobcomploc": _ACCOUNTING, "jobacctgathertype": _ACCOUNTING,
        "prioritytype": _ACCOUNTING, "preempttype": "the field `slurm.preemption`",
        "preemptmode": "the field `slurm.preemption`", "preemptexempttime": "the field `slurm.preemption`",
        "resumeprogram": POWER, "suspendprogram": POWER, "resumefailprogram": POWER, "resumerate": POWER,
        "suspendrate": POWER, "suspendtime": POWER, "resumetimeout": POWER, "suspendtimeout": POWER,
        "suspendexcnodes": POWER, "suspendexcparts": POWER, "suspendexcstates": POWER, "plugstackconfig": "the field `slurm.containers`",
        "nodename": "the field `pools`", "partitionname": "the field `partitions`", "nodeset": "the field `pools`",
        "downnodes": "`scontrol update` or `gpucluster node`", "slurmdparameters": "the hardware of a node is that of its `machine`; words that change what slurmd reports have no field",
    },
    "node": {
        "nodename": "the field `pools[].name`, or `hosts`", "nodeaddr": "the field `addresses`",
        "nodehostname": "the field `hosts`", "bcastaddr": "a node has one address, that of the field `addresses`",
        "port": _PORTS, "cpus": _NODE, "procs": _NODE, "boards": _NODE, "sockets": _NODE,
        "socketsperboard": _NODE, "corespersocket": _NODE, "threadspercore": _NODE, "realmemory": _NODE,
        "gres": "the fields `machine` and `sharing`", "feature": "the field `features` of the pool",
        "features": "the field `features` of the pool", "state": "`scontrol update` or `gpucluster node`",
        "suspendtime": POWER, "topology": "the field `slurm.topology`",
    },
    "partition": {
        "partitionname": "the field `name`", "nodes": "the field `pools`", "default": "the field `default`",
        "maxtime": "the field `max_time`", "defaulttime": "the field `default_time`",
        "suspendtime": POWER, "resumetimeout": POWER, "suspendtimeout": POWER, "powerdownonidle": POWER, "prioritytier": "the field `tier`",
        "priority": "the field `tier`", "oversubscribe": _SHARE, "shared": _SHARE,
        "exclusive": "the field `exclusive`", "qos": "the field `qos`", "allowaccounts": "the field `accounts`",
        "allowqos": "the field `allow_qos`", "maxcpuspernode": "the field `max_cpus_per_node`",
        "topology": "the field `topology`", "preemptmode": "the field `slurm.preemption`",
    },
}  # fmt: skip
DEFAULTS: Mapping[str, frozenset[str]] = {
    "slurm.conf": frozenset(
        (
            "slurmctldtimeout", "slurmdtimeout", "messagetimeout", "tcptimeout", "batchstarttimeout",
            "unkillablesteptimeout", "propagateresourcelimitsexcept", "mailprog", "maxjobcount", "maxarraysize",
            "enforcepartlimits", "priorityflags", "prioritydecayhalflife", "prioritymaxage", "priorityweightqos",
            "priorityweightfairshare", "priorityweightage", "switchtype",
        )
    ),
    "node": frozenset(("weight",)),
    "partition": frozenset(("defcpupergpu", "defmempercpu", "tresbillingweights", "state")),
}  # fmt: skip
REMOVED: Mapping[
    str, str
] = {  # read_config.c of 22.05 to 26.05 takes these keys, and ends the program: what to write
    "fastschedule": "SlurmdParameters=config_overrides is for tests only; the hardware of a node is that of its `machine`",
    "accountingstorejobcomment": "write AccountingStoreFlags: job_comment",
    "sallocdefaultcommand": "gpucluster writes LaunchParameters=use_interactive_step",
    "accountingstorageloc": _ACCOUNTING,
}
RENAMED: Mapping[str, str] = {  # keys that slurmctld still reads, with an error line: what to write
    "sbcastparameters": "write BcastParameters",
    "keepalivetime": "write CommunicationParameters: {keepalivetime: SECONDS}",
}
REPLACES: Mapping[
    tuple[str, str], str
] = {  # (kind, key) -> the default of ours that it replaces; Slurm takes one of them
    ("partition", "defmempernode"): "defmempercpu",
    ("partition", "maxmempernode"): "maxmempercpu",
    ("slurm.conf", "propagateresourcelimits"): "propagateresourcelimitsexcept",
}
SITE_WIDE: Mapping[
    str, str
] = {  # key of slurm.conf -> the default of ours on each partition line that it replaces
    "defmempercpu": "defmempercpu",
    "defmempernode": "defmempercpu",
    "maxmempercpu": "maxmempercpu",
    "maxmempernode": "maxmempercpu",
    "defcpupergpu": "defcpupergpu",
}
REFUSED_WORDS: Mapping[
    str, Mapping[str, str]
] = {  # key -> word of its list that does not go with what we write: why
    "slurmctldparameters": {
        "reboot_from_controller": "slurmctld would run RebootProgram, /sbin/reboot, on the head"
    },
    "communicationparameters": {"disableipv4": "the addresses of a spec are of IPv4"},
    "jobacctgatherparams": {
        "overmemorykill": "task/cgroup already ends a job above its memory, and slurmd refuses both",
        "noshared": "it is of jobacct_gather/linux, and gpucluster writes jobacct_gather/cgroup",
        "usepss": "it is of jobacct_gather/linux, and gpucluster writes jobacct_gather/cgroup",
    },
}
LISTS: Mapping[str, frozenset[str]] = {  # key -> words that are ours; `extra` sets the others
    "slurmctldparameters": frozenset(
        ("enable_configless", "idle_on_node_suspend", "node_reg_mem_percent", "cloud_dns", "cloud_reg_addrs")
    ),
    "schedulerparameters": frozenset(
        ("salloc_wait_nodes", "sbatch_wait_nodes", "nohold_on_prolog_fail", "pack_serial_at_end")
    ),
    "launchparameters": frozenset(("use_interactive_step",)),
    "debugflags": frozenset(("Power",)),
}
RESTART = frozenset(  # slurm.conf(5): a reconfigure changes neither ports nor authentication
    ("authalttypes", "authaltparameters", "communicationparameters", "tlstype", "tlsparameters", "hashplugin")
)

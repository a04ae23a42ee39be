"""Every name, tag, path and port that two rooms must agree on. No other place spells them."""

# --- tags of AWS resources -------------------------------------------------------------------
TAG_CLUSTER = "gpucluster:cluster"  # on everything; an instance without it is never touched
TAG_ROLE = "gpucluster:role"  # head | node
TAG_POOL = "gpucluster:pool"
TAG_REQUEST = "gpucluster:request"  # the daemon's request id, on instances that it launched
ROLE_HEAD, ROLE_NODE = "head", "node"

# --- objects in the cluster's bucket ---------------------------------------------------------
BUNDLE_KEY = "bundle.tar.gz"  # the one fixed key; the bucket is versioned
CONTROL_KEY = "control.json"  # who may act, and whether to scale
STATUS_KEY = "status/head.json"  # what the head has applied

# --- files in the bundle ---------------------------------------------------------------------
PLAN_FILE = "plan.json"
BINDINGS_FILE = "bindings.json"
SLURM_DIR = "slurm"  # slurm/slurm.conf ..., goes to /etc/slurm of the head
HOSTS_FILE = "head/hosts"  # lines for the head's /etc/hosts

# --- on machines -----------------------------------------------------------------------------
VENV = "/opt/gpucluster/venv"
HOOK_DIR = "/opt/gpucluster/bin"  # resume, suspend, resume_fail (one file), prolog_slurmctld
AGENT_UNIT = "gpucluster-agent.service"  # user data starts it, the image enables it
USER_DATA_FILE = "/etc/gpucluster/machine.json"  # written from user data: {region, bucket, key, role}
ENDPOINT_FILE = "/etc/gpucluster/agent.env"  # sandbox only: AWS_ENDPOINT_URL
STATE_DIR = "/var/lib/gpucluster"  # applied bundle, plan.json, bindings.json, journal
BUNDLE_DIR = (
    f"{STATE_DIR}/bundle"  # link to the applied bundle's tree: BUNDLE_DIR/plan.json, BUNDLE_DIR/slurm/...
)
AGENT_STATE = f"{STATE_DIR}/agent.json"
AGENT_RUN = "/run/gpucluster-agent"  # root's: slurmd.env, the Prolog's doorbell
DOORBELL = f"{AGENT_RUN}/doorbell"  # Unix datagram: a hostlist whose names must resolve here
PROLOG = f"{HOOK_DIR}/prolog"  # Slurm's Prolog on nodes: rings the doorbell; needs PrologFlags=Alloc
JOURNAL = f"{STATE_DIR}/elastic/journal.sqlite"  # owner slurm
SPOOL = "/var/spool/gpucluster"  # maildir of the hooks: tmp/ new/ cur/, owner slurm
WAKE_SOCKET = "/run/gpucluster/wake"  # Unix datagram, the daemon's
MUNGE_KEY = "/etc/munge/munge.key"
SLURM_ETC = "/etc/slurm"

CONTROLLER_PORT = 6817
SLURMD_PORT = 6818
REGISTRATION_PORT = 6890  # not slurmrestd's 6820
SRUN_PORTS = (60001, 63000)
METADATA = "http://169.254.169.254"

REASON_PREFIX = "gpucluster:"  # a drain reason that begins so is ours to lift


def zone_suffix(region: str, zone: str) -> str:
    """`us-east-1a` in `us-east-1` -> `1a`: the last figure of the region and the zone's letter."""
    return region[-1] + zone.removeprefix(region)


def slot_prefix(pool: str, region: str, zone: str) -> str:
    """`h200-1a-`: always with the zone, so that no name depends on a count."""
    return f"{pool}-{zone_suffix(region, zone)}-"


def template_key(pool: str, source: int, machine: str) -> str:
    """`h200-0-p5en.48xlarge`: one launch template for each (pool, source, machine)."""
    return f"{pool}-{source}-{machine}"

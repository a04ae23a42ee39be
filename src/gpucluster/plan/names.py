"""Every name, tag, path and port that two rooms must agree on. No other place spells them."""

import hashlib
import re

# --- tags of AWS resources -------------------------------------------------------------------
TAG_CLUSTER = "gpucluster:cluster"  # on everything; an instance without it is never touched
TAG_ROLE = "gpucluster:role"  # head | node
TAG_POOL = "gpucluster:pool"
TAG_REQUEST = "gpucluster:request"  # the daemon's request id, on instances that it launched
ROLE_HEAD, ROLE_NODE, ROLE_LOGIN = "head", "node", "login"
ROLE_STANDBY = "standby"  # a second head, which waits
ROLE_JOBS = "jobs"  # no machine's: the node's agent takes it on for jobs
TAG_JOB = "gpucluster:job"  # at launch: the job that an instance was launched for
TAG_ACCOUNT = "gpucluster:account"  # and its Slurm account: both for cost
TAG_IMAGE = "gpucluster:image"  # on images and snapshots: `image_name`
TAG_IMAGE_DIGEST = "gpucluster:image-digest"  # what the image was made of; of the same digest there is one
TAG_BUILDER = (
    "gpucluster:image-builder"  # on what builds one: `image_name`; found by it when a build was killed
)
TAG_BUILT_FROM = "gpucluster:built-from"  # the maker's image

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
USER_DATA_FILE = (
    "/etc/gpucluster/machine.json"  # from user data: {cluster, region, bucket, key, role}; on hosts that
)
# exist from Ansible: {cluster, role, node, address, folder}
ENDPOINT_FILE = "/etc/gpucluster/agent.env"  # sandbox only: AWS_ENDPOINT_URL, GPUCLUSTER_KERNEL_LOG
KERNEL_LOG = "/dev/kmsg"  # where the driver writes `NVRM: Xid`
KERNEL_LOG_VARIABLE = "GPUCLUSTER_KERNEL_LOG"  # in the agent's environment: another path, of plain lines
KERNEL_LOG_STAND_IN = "/run/gpucluster-kmsg"  # the sandbox's: in a container /dev/kmsg is not the machine's
STATE_DIR = "/var/lib/gpucluster"  # applied bundle, plan.json, bindings.json, journal
BUNDLE_DIR = (
    f"{STATE_DIR}/bundle"  # link to the applied bundle's tree: BUNDLE_DIR/plan.json, BUNDLE_DIR/slurm/...
)
SITE_DIR = f"{STATE_DIR}/site"  # hosts that exist: what Ansible brought (the bundle), and the agent's status
SITE_STATUS = "status.json"  # in it
AGENT_STATE = f"{STATE_DIR}/agent.json"
AGENT_RUN = "/run/gpucluster-agent"  # root's: slurmd.env, the Prolog's doorbell
DOORBELL = f"{AGENT_RUN}/doorbell"  # Unix datagram: a hostlist whose names must resolve here
BEATS_DIR = "/run/gpucluster-beats"  # a job touches JOBID there while it makes progress; opt-in
PROLOG = f"{HOOK_DIR}/prolog"  # Slurm's Prolog on nodes: rings the doorbell; needs PrologFlags=Alloc
JOBS_DIR = "/run/gpucluster-jobs"  # the agent's, where jobs have a role: the Prolog leaves a job's token there, as JOBID
JOBS_PORT = 301  # loopback: credentials of jobs. Nobody but root binds it (below 1024), nor do clients of NFS or rpc (512-1023)
TASK_PROLOG = f"{HOOK_DIR}/task_prolog"  # Slurm's TaskProlog: tells a job where its credentials are
JOURNAL = f"{STATE_DIR}/elastic/journal.sqlite"  # owner slurm
SPOOL = "/var/spool/gpucluster"  # maildir of the hooks: tmp/ new/ cur/, owner slurm
WAKE_SOCKET = "/run/gpucluster/wake"  # Unix datagram, the daemon's
STATE_MOUNT = (
    "/srv/gpucluster-state"  # the head's protected volume: slurmctld's state and the journal, by bind mounts
)
STATE_VOLUME = "state"  # its key in Head.volumes and bindings
KEY_FOLDER = "/etc/ssh/authorized_keys.d"  # root's own: a user's key that leaves the spec leaves the machine
MUNGE_KEY = "/etc/munge/munge.key"
SLURM_ETC = "/etc/slurm"
NEAR_CONF = f"{SLURM_ETC}/near.conf"  # the standby's: slurm.conf with itself as the first controller

CONTROLLER_PORT = 6817
SLURMD_PORT = 6818
NFS_PORT = 2049
LUSTRE_PORTS = ((988, 988), (1018, 1023))  # T45
REGISTRATION_PORT = 6890  # not slurmrestd's 6820
METRICS_PORT = 6891  # the daemon's, on the head's loopback: /metrics for Prometheus, /seen for `why`
SRUN_PORTS = (60001, 63000)
METADATA = "http://169.254.169.254"

REASON_PREFIX = "gpucluster:"  # a drain reason that begins so is ours to lift
WINDOW_PREFIX = "gpucluster-cr-"  # a Slurm reservation that begins so is ours, of the capacity block `cr-...`

# --- Kubernetes ------------------------------------------------------------------------------
K8S_DIR = "k8s"  # k8s/00-namespaces/..., applied wave by wave
LABEL_CLUSTER = "gpucluster/cluster"  # on everything that we make
LABEL_POOL = "gpucluster/pool"  # on nodes: which pool's they are
LABEL_TEAM = "gpucluster/team"  # on namespaces
LABEL_WORKLOAD = "gpucluster/workload"  # on pods: which service's or gang's they are
LABEL_NAMESPACE = "kubernetes.io/metadata.name"  # the API server's, on every namespace
LABEL_ZONE, LABEL_HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
LABEL_MIG = "nvidia.com/mig.config"  # on nodes: the MIG manager slices GPUs by it
TAINT_GPU = "nvidia.com/gpu"
LOCAL_QUEUE = "default"  # Kueue sends what names no queue there
ROLE_KUBERNETES = "kubernetes-node"  # in TAG_ROLE, of security groups


def zone_suffix(region: str, zone: str) -> str:
    """`us-east-1a` in `us-east-1` -> `1a`: the last figure of the region and the zone's letter."""
    return region[-1] + zone.removeprefix(region)


def slot_prefix(pool: str, region: str, zone: str) -> str:
    """`h200-1a-`: always with the zone, so that no name depends on a count."""
    return f"{pool}-{zone_suffix(region, zone)}-"


def template_key(pool: str, kind: str, machine: str) -> str:
    """`h200-spot-p5en.48xlarge`: by market, or by the id of what was bought ahead, so that another order of sources moves none."""
    return f"{pool}-{kind}-{machine}"


def kubernetes_name(cluster: str, thing: str) -> str:
    """`kube-tune`: cluster-scoped objects carry the cluster, for a Kubernetes may have two of ours."""
    return f"{cluster}-{thing}"


def team_group(team: str) -> str:
    """The group that RBAC binds; an EKS access entry or an OIDC claim puts people into it."""
    return f"gpucluster:{team}"


def volume_name(path: str) -> str:
    """`data` of `/data`; where letters had to go, a digest keeps two paths apart."""
    plain = path.strip("/")
    name = re.sub("[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].strip("-")
    if name == plain:
        return name
    return f"{name or 'x'}-{hashlib.sha256(path.encode()).hexdigest()[:6]}"


def of_team(team: str, thing: str) -> str:
    """`a.b-c`: no name has a dot, so `b-c` of team `a` is not `c` of team `a-b`."""
    return f"{team}.{thing}"


def persistent_volume(cluster: str, team: str, path: str) -> str:
    """One a team: a volume is bound to one claim."""
    return kubernetes_name(cluster, of_team(team, volume_name(path)))


def kubernetes_node_role(cluster: str) -> str:
    """The IAM role of Kubernetes' nodes."""
    return f"{cluster}-kubernetes-node"


def interruption_queue(cluster: str) -> str:
    """The SQS queue in which Karpenter reads spot notices."""
    return f"{cluster}-interruptions"


def standby_name(cluster: str) -> str:
    """The second head's host name, in slurm.conf and hosts files."""
    return f"{cluster}-standby"


def placement_key(pool: str, zone: str) -> str:
    """`h200/us-east-1a`: a placement group in the bindings."""
    return f"{pool}/{zone}"


def image_name(os: str, slurm_version: str) -> str:
    """`gpucluster-ubuntu-24.04-slurm-24.11`."""
    return f"gpucluster-{os}-slurm-{slurm_version}"


def login_name(cluster: str, number: int) -> str:
    """`research-login-1`."""
    return f"{cluster}-login-{number}"


def export_key(path: str) -> str:
    """`nfs-apps` of `/apps`: the head's volume for an export, in its plan and in the bindings."""
    return f"nfs-{volume_name(path)}"

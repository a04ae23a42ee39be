"""Every name, tag, path and port that two packages share. No other module defines them."""

import hashlib
import re
from collections.abc import Mapping, Sequence

# --- tags of AWS resources -------------------------------------------------------------------
TAG_CLUSTER = "gpucluster:cluster"  # on every resource; instances without it are never changed
TAG_ROLE = "gpucluster:role"  # head | node
TAG_POOL = "gpucluster:pool"
TAG_REQUEST = "gpucluster:request"  # the daemon's request id, on instances that it launched
ROLE_HEAD, ROLE_NODE, ROLE_LOGIN = "head", "node", "login"
ROLE_STANDBY = "standby"  # the second head, in standby
HEAD_ROLES = (ROLE_HEAD, ROLE_STANDBY)
PROFILE_ROLES = (ROLE_HEAD, ROLE_STANDBY, ROLE_NODE, ROLE_LOGIN)  # with an instance profile and a role in IAM
ROLE_JOBS = "jobs"  # no machine's role: the node's agent assumes it for jobs
TAG_JOB = "gpucluster:job"  # set at launch: the job of the launch
TAG_ACCOUNT = "gpucluster:account"  # and its Slurm account: both for cost allocation
TAG_IMAGE = "gpucluster:image"  # on images and snapshots: `image_name`
TAG_IMAGE_DIGEST = "gpucluster:image-digest"  # one image for each digest of its inputs
TAG_BUILDER = "gpucluster:image-builder"  # on the instance that builds an image: `image_name`; a later build finds the rest of a killed one by it
TAG_BUILT_FROM = "gpucluster:built-from"  # name of the base image
TAG_TEMPLATE = "aws:ec2launchtemplate:id"  # EC2 sets both on what a launch template launches, and nobody can change them (T54)
TAG_TEMPLATE_VERSION = "aws:ec2launchtemplate:version"

# --- objects in the cluster's bucket ---------------------------------------------------------
BUNDLE_KEY = "bundle.tar.gz"  # the only fixed key; the bucket is versioned
CONTROL_KEY = "control.json"  # the lease, and whether to scale
ORDERS_KEY = "orders.json"  # copy of operators' orders, the budget's state and the month's spend
STATUS_KEY = "status/head.json"  # the bundle that the head has applied
COMMAND_OUTPUT = "ssm"  # folder: output of commands by Systems Manager; the caller reads and deletes it

# --- files in the bundle ---------------------------------------------------------------------
PLAN_FILE = "plan.json"
BINDINGS_FILE = "bindings.json"
SOURCE_FILE = "source.json"  # `plan.spec_source`: the spec that the bundle was made of
SLURM_DIR = "slurm"  # slurm/slurm.conf ..., copied to /etc/slurm of the head
ENV_DIR = "env.d"  # env.d/POOL.sh: the environment of a pool's jobs, copied to JOB_ENV_DIR of every machine
PROFILE_FILE = (
    "profile.d/gpucluster.sh"  # software on shared storage, copied to PROFILE of login machines and nodes
)
HOSTS_FILE = "head/hosts"  # lines for the head's /etc/hosts
SLURMDBD_FILE = "head/slurmdbd.conf"  # without a password
MARIADB_FILE = "head/mariadb.cnf"

# --- on machines -----------------------------------------------------------------------------
VENV = "/opt/gpucluster/venv"
HOOK_DIR = "/opt/gpucluster/bin"  # resume, suspend, resume_fail (one file), prolog_slurmctld
MACHINE_COMMAND = f"{HOOK_DIR}/gpucluster"  # the command on machines: gpucluster.elastic.machine_command
COMMAND_LINK = "/usr/local/bin/gpucluster"  # a link to it, if the machine has no file of this name
WATCH_TIMER = "gpucluster-watch.timer"  # the playbook enables it on the head of existing hosts
ACCOUNTS_TIMER = "gpucluster-accounts.timer"  # the same, if there is accounting
AGENT_UNIT = "gpucluster-agent.service"  # user data starts it, the image enables it
GUARD_UNIT = "gpucluster-guard.service"  # the image enables it
# user data writes {cluster, region, bucket, key, role}; on existing hosts Ansible writes {cluster, role, node, address, folder}
USER_DATA_FILE = "/etc/gpucluster/machine.json"
PROFILE = "/etc/profile.d/00-gpucluster.sh"  # before Lmod's lmod.sh, which appends to its variable
JOB_ENV_DIR = "/etc/gpucluster/env.d"  # POOL.sh of every pool, for users to read
JOB_ENV = "/etc/gpucluster/env.sh"  # on a node: the file of its own pool; job scripts source it
ENDPOINT_FILE = "/etc/gpucluster/agent.env"  # sandbox only: AWS_ENDPOINT_URL, GPUCLUSTER_KERNEL_LOG
KERNEL_LOG = "/dev/kmsg"  # the driver writes `NVRM: Xid` there
KERNEL_LOG_VARIABLE = "GPUCLUSTER_KERNEL_LOG"  # in the agent's environment: another path, with plain lines
KERNEL_LOG_STAND_IN = "/run/gpucluster-kmsg"  # for the sandbox: in a container /dev/kmsg is not the machine's
STATE_DIR = "/var/lib/gpucluster"  # applied bundle, plan.json, bindings.json, journal
BUNDLE_DIR = f"{STATE_DIR}/bundle"  # link to the tree of the applied bundle: BUNDLE_DIR/plan.json, BUNDLE_DIR/slurm/...
HELD_BUNDLE = (
    f"{STATE_DIR}/held-bundle.json"  # of the head's agent: HeldBundle, for the daemon and for `bundle show`
)
CONTROLLER_WATCH = (
    f"{STATE_DIR}/slurmctld-watch.json"  # of the head's agent: ControllerWatch, for metrics and `why`
)
BUNDLE_RELEASE = f"{STATE_DIR}/bundle-release.json"  # of an operator, as root: BundleRelease; the agent applies that bundle now
SITE_DIR = f"{STATE_DIR}/site"  # existing hosts: Ansible's copy of the bundle, and the agent's status
SITE_STATUS = "status.json"  # in SITE_DIR
AGENT_STATE = f"{STATE_DIR}/agent.json"
AGENT_RUN = "/run/gpucluster-agent"  # of root: slurmd.env, the Prolog's socket
PROLOG_SOCKET = (
    f"{AGENT_RUN}/prolog.sock"  # Unix datagram: the hostlist of a job whose node names must resolve here
)
JOB_HEARTBEAT_DIR = "/run/gpucluster-heartbeats"  # opt-in: a job touches JOBID there while it makes progress
JOB_RESTARTS_DIR = (
    "/run/gpucluster-restarts"  # of root: the Prolog writes the number of runs that began before, as JOBID
)
PROLOG = f"{HOOK_DIR}/prolog"  # Slurm's Prolog on nodes: sends the hostlist to PROLOG_SOCKET; needs PrologFlags=Alloc
JOBS_DIR = "/run/gpucluster-jobs"  # of the agent, if jobs have a role: the Prolog writes a job's token there, as JOBID
JOBS_PORT = 301  # loopback: credentials of jobs. Only root can bind it (below 1024); clients of NFS or rpc use 512-1023
HEALTH_FILE = f"{AGENT_RUN}/health.json"  # what the health programs compare with; the agent writes it
HEALTH_JUDGED = f"{AGENT_RUN}/health-judged"  # the time of the last drain by a health program
HEALTH_COMMENTED = f"{AGENT_RUN}/health-commented"  # exists while the node's Comment is of a health program
HEALTH_CHECK = (
    f"{HOOK_DIR}/health_check"  # Slurm's HealthCheckProgram; --report prints each check and drains nothing
)
HEALTH_PROLOG, HEALTH_EPILOG = f"{HOOK_DIR}/health_prolog", f"{HOOK_DIR}/health_epilog"
MIG_FOLDER = (
    "/dev/gpucluster-mig"  # on nodes with MIG: the capabilities of slice K of GPU N, as N-K-gi and N-K-ci
)
MIG_VARIABLE = (
    "GPUCLUSTER_MIG_MINORS"  # in the agent's environment: another mig-minors file, with MIG_MAJOR_STAND_IN
)
MIG_MAJOR_STAND_IN = 511  # major of device files without a driver
FABRIC_FOLDER = "/sys/class/infiniband"  # devices of EFA and InfiniBand
FABRIC_VARIABLE = "GPUCLUSTER_FABRIC"  # in the agent's environment: another folder of this form
TASK_PROLOG = f"{HOOK_DIR}/task_prolog"  # Slurm's TaskProlog: gives a job its restarts, the address of its credentials and its MPS daemon
MPS_UNIT = "gpucluster-mps@"  # the control daemon of GPU N: gpucluster-mps@N.service
MPS_DIR = "/run/gpucluster-mps"  # the pipes of the control daemon of GPU N: MPS_DIR/N
PRIVATE_TMP = "/var/lib/gpucluster-tmp"  # on nodes: the /tmp of each job, if the plan names no other folder
PRIVATE_TMP_ON_DISKS = ".gpucluster-tmp"  # the same below the mount point of the machine's own disks
JOURNAL = f"{STATE_DIR}/elastic/journal.sqlite"  # owner slurm
SEEN_TOPOLOGY = f"{STATE_DIR}/elastic/topology.json"  # of the daemon, for the head's agent: the switches above nodes that stay
DIVIDED_TOPOLOGY = f"{STATE_DIR}/topology.conf"  # of the head's agent: the rendered file with these switches
SPOOL = "/var/spool/gpucluster"  # maildir of the hooks: tmp/ new/ cur/, owner slurm
SLURMD_SPOOL = "/var/spool/slurmd"
WAKE_SOCKET = "/run/gpucluster/wake"  # Unix datagram socket of the daemon
STATE_MOUNT = (
    "/srv/gpucluster-state"  # the head's protected volume: slurmctld's state and the journal, by bind mounts
)
STATE_VOLUME = "state"  # its key in Head.volumes and bindings
PYXIS_PLUGIN = "/usr/local/lib/slurm/spank_pyxis.so"  # the image's part `pyxis` installs it, by its Makefile
KEY_FOLDER = "/etc/ssh/authorized_keys.d"  # owned by root: when a user's key leaves the spec, it also leaves the machine
MUNGE_KEY = "/etc/munge/munge.key"
SLURM_ETC = "/etc/slurm"
STANDBY_CONF = f"{SLURM_ETC}/standby.conf"  # on the standby: slurm.conf with itself as the first controller

SLURMDBD_CONF = f"{SLURM_ETC}/slurmdbd.conf"  # of the head: SLURMDBD_FILE with the account of an external database, mode 0600
DATABASE = "slurm_acct_db"  # Slurm's own name; no '-', which Slurm refuses in a name
DATABASE_USER = "slurm"
MARIADB_DATA = "/var/lib/mysql"  # with a state volume, a bind mount of a folder on it
MARIADB_CONF = "/etc/mysql/mariadb.conf.d/90-gpucluster.cnf"
ARCHIVE_DIR = "/var/lib/slurm-archive"  # of slurmdbd: records that it deletes from the database
JOB_COMPLETIONS = "/var/log/slurm/jobs.log"  # one line for each ended job, where there is no database
SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"

CONTROLLER_PORT = 6817
SLURMD_PORT = 6818
NFS_PORT = 2049
LUSTRE_PORTS = ((988, 988), (1018, 1023))  # T45
EFS_PROXY_PORTS = (20049, 21049)  # local ports of mount.efs, by its own configuration (T47)
REGISTRATION_PORT = 6890  # different from slurmrestd's 6820
METRICS_PORT = 6891  # the daemon's, on the head's loopback: /metrics for Prometheus, /status for `why`
SRUN_PORTS = (60001, 63000)
SLURMDBD_PORT = 6819
DATABASE_PORT = 3306  # of MySQL and MariaDB
METADATA = "http://169.254.169.254"
NAME_SERVER = "169.254.169.253"  # of every VPC, unless DNS support is off there

REASON_PREFIX = (
    "gpucluster:"  # begins each drain reason of gpucluster; slurm/drains.py reads the owner after it
)
RESERVATION_PREFIX = "gpucluster-"  # begins the name of each Slurm reservation of gpucluster
BLOCK_RESERVATION_MARK = "cr-"  # after it: the reservation belongs to the capacity block `cr-...`
BLOCK_RESERVATION_PREFIX = RESERVATION_PREFIX + BLOCK_RESERVATION_MARK

# --- Kubernetes ------------------------------------------------------------------------------
K8S_DIR = "k8s"  # k8s/00-namespaces/..., applied wave by wave
LABEL_CLUSTER = "gpucluster/cluster"  # on every object of ours
LABEL_POOL = "gpucluster/pool"  # on nodes: their pool
KUBERNETES_ARCH = {"x86_64": "amd64", "arm64": "arm64"}  # EC2's name of an architecture -> Kubernetes'
LABEL_TEAM = "gpucluster/team"  # on namespaces
LABEL_WORKLOAD = "gpucluster/workload"  # on pods: their service or gang
LABEL_SERVICE_ACCOUNT = (
    "gpucluster/service-account"  # on pods: their account with rights in AWS; a NetworkPolicy selects by it
)
LABEL_ANSWERS = "gpucluster/answers"  # on the first pod of a replica of several nodes
LABEL_VALIDATION = "gpucluster/validation"  # on pods and the namespace of `validate`: the cluster
LABEL_VALIDATION_RUN = "gpucluster/validation-run"
LABEL_NAMESPACE = "kubernetes.io/metadata.name"  # the API server's, on every namespace
LABEL_ZONE, LABEL_HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
LABEL_MIG = "nvidia.com/mig.config"  # on nodes: the MIG manager slices GPUs by it
TAINT_GPU = "nvidia.com/gpu"
CHECKPOINT_VARIABLE = "CHECKPOINT_DIR"  # in pods of a gang with a checkpoint: its folder
NCCL_TEST_PREFIX = "nccl-test-"  # of the job that tests NCCL in a pool
KARPENTER = "karpenter"  # namespace and service account of its chart
SYSTEM_NODES = "system"  # the node group of add-ons and controllers; its nodes have this in LABEL_SYSTEM
LABEL_SYSTEM = "gpucluster/nodes"
LOCAL_QUEUE = "default"  # Kueue's queue for workloads without a queue label
POD_IDENTITY_AGENT = "169.254.170.23/32"  # of EKS's agent on every node; it answers on port 80 (EKS user guide, pod-id-agent-setup)
ROLE_KUBERNETES = "kubernetes-node"  # in TAG_ROLE, of security groups


def zone_suffix(region: str, zone: str) -> str:
    """`us-east-1a` in `us-east-1` -> `1a`: the last digit of the region and the zone's letter."""
    return region[-1] + zone.removeprefix(region)


def slot_prefix(pool: str, region: str, zone: str) -> str:
    """`h200-1a-`: always with the zone, so that no name depends on a count."""
    return f"{pool}-{zone_suffix(region, zone)}-"


def zone_part(pool: str, region: str, zone: str) -> str:
    """`train.2a`: the part of a pool in one zone. No pool has a dot in its name."""
    return f"{pool}.{zone_suffix(region, zone)}"


def template_key(pool: str, kind: str, machine: str) -> str:
    """`h200-spot-p5en.48xlarge`: by market, or by the id of prepaid or reserved capacity. The order of sources does not matter."""
    return f"{pool}-{kind}-{machine}"


def kubernetes_name(cluster: str, thing: str) -> str:
    """`kube-tune`: cluster-scoped objects carry the cluster's name, because one Kubernetes may have two of our clusters."""
    return f"{cluster}-{thing}"


def mig_config(cluster: str, pool: str, mig: Mapping[str, int]) -> str:
    """`kube-serve-0a1b2c`: the MIG manager slices the GPUs of a node when its label changes, not when the configuration of that name does."""
    text = ",".join(f"{profile}={slices}" for profile, slices in sorted(mig.items()))
    return f"{kubernetes_name(cluster, pool)}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def flavor(cluster: str, pool: str, levels: Sequence[str]) -> str:
    """`kube-tune.zone-host`: with the levels of its topology, because a ResourceFlavor never changes its topology."""
    return kubernetes_name(cluster, ".".join((pool, *(("-".join(levels),) if levels else ()))))


def monitoring_namespace(cluster: str) -> str:
    """The namespace of alerts and dashboards."""
    return f"{cluster}-monitoring"


def team_group(team: str) -> str:
    """The group in RBAC bindings. An EKS access entry or an OIDC claim puts people into it."""
    return f"gpucluster:{team}"


def volume_name(path: str) -> str:
    """`data` of `/data`. If characters are removed, a digest keeps two paths apart."""
    plain = path.strip("/")
    name = re.sub("[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].strip("-")
    if name == plain:
        return name
    return f"{name or 'x'}-{hashlib.sha256(path.encode()).hexdigest()[:6]}"


def group_name(service: str) -> str:
    """The LeaderWorkerSet of a service. Its controller makes a headless Service of this name beside the service's own."""
    return f"{service}-group"


def service_policy(service: str) -> str:
    """The NetworkPolicy of a service. No policy of a team begins so, and a service may be called `dns`."""
    return f"service-{service}"


def of_team(team: str, thing: str) -> str:
    """`a.b-c`: no name has a dot, so `b-c` of team `a` is not `c` of team `a-b`."""
    return f"{team}.{thing}"


def persistent_volume(cluster: str, team: str, path: str) -> str:
    """One volume for each team, because a volume is bound to one claim."""
    return kubernetes_name(cluster, of_team(team, volume_name(path)))


def kubernetes_node_role(cluster: str) -> str:
    """The IAM role of Kubernetes' nodes."""
    return f"{cluster}-kubernetes-node"


def log_group(cluster: str) -> str:
    """The log group to which EKS writes the logs of a control plane; EKS fixes the name."""
    return f"/aws/eks/{cluster}/cluster"


def principal_word(arn: str) -> str:
    """`platform-0a1b2c` of a role's ARN, for names of resources. The digest keeps two accounts apart."""
    name = re.sub("[^A-Za-z0-9]+", "-", arn.rpartition("/")[2]).strip("-")[:40]
    return f"{name or 'x'}-{hashlib.sha256(arn.encode()).hexdigest()[:6]}"


def pods_role(namespace: str, service_account: str) -> str:
    """`trainer-0a1b2c`, in names of resources of one service account. IAM takes 64 characters; the digest keeps two namespaces apart."""
    digest = hashlib.sha256(f"{namespace}/{service_account}".encode()).hexdigest()
    return f"{service_account[:20].rstrip('-')}-{digest[:6]}"


def node_group(pool: str, kind: str, machine: str, region: str, zone: str) -> str:
    """`tune-on-demand-p4de-24xlarge-2a`: by market and machine, or by the id of a reservation. EKS takes no dot and 63 characters."""
    what = kind if kind.startswith("cr-") else f"{kind}-{machine}"
    return f"{pool}-{what}-{zone_suffix(region, zone)}".replace(".", "-")


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


def month_qos(account: str, base: str) -> str:
    """`product-normal`: the QOS of an account with a monthly limit, made like the QOS `normal`."""
    return f"{account}-{base}"

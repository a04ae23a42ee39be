"""Edits of the example stacks that an auditor tried, and what `diff` must say of each. Both paths: with and without resources."""

from dataclasses import dataclass, field
from pathlib import Path

STACKS = Path(__file__).parents[2] / "stacks"

GOES_ON, STAYS_QUEUED, STAYS_OPEN, STAYS = "go on", "stay in the queue", "stay open", "stays where it is"
NOT_PUT_BACK = "a copy of /srv/gpucluster-state is not put back: jobs that have ended since would run again"
Change = tuple[str, str]
_BURST_ZONES = "zones: [us-east-1a, us-east-1b]}"
_LOGIN = ("pools:\n", "login: {machine: m7i.large, count: 1}\npools:\n")
_SSH = ("access: {ssm: true} ", "access: {ssm: true, ssh_from: [198.51.100.0/24]} ")
_LUSTRE = """  - mount: /data
    fsx_lustre:
      zone: us-east-1a
      size: 9600GiB
      throughput: 1000MBps/TiB
      link: [{path: /sets, s3: "s3://example-data/sets", import: new, export: changed}]
"""
_HOME = "  - {mount: /home, efs: {}}                           # or efs: {id: fs-0abc…}\n"
_APPS = "  - {mount: /apps, nfs: {from: head, size: 200GiB}}"
_SERVER = "  - {mount: /apps, nfs: {server: 192.0.2.5, export: /srv/apps}}"
_OS_IMAGE = ("image: {os: ubuntu-24.04} ", "image: {ami: ami-0123456789abcdef0} ")
_ARCHIVE = '  - {mount: /archive, other: {type: beegfs, source: "192.0.2.9:/archive", options: [rw]}}\n'


@dataclass(frozen=True, kw_only=True, eq=False)
class Audited:
    """`says` has texts that stand in the sentence of a subject; `never` texts that no line has; `steps` begin some steps."""

    id: str
    stack: str
    changes: tuple[Change, ...]
    base: tuple[Change, ...] = ()  # made on both sides
    worst: str = ""
    says: dict[str, str] = field(default_factory=dict[str, str])
    is_exactly: dict[str, str] = field(default_factory=dict[str, str])
    never: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    no_steps: tuple[str, ...] = ()

    @property
    def old(self) -> str:
        return _edited((STACKS / f"{self.stack}.yaml").read_text(), self.base)

    @property
    def new(self) -> str:
        return _edited(self.old, self.changes)


def _edited(text: str, changes: tuple[Change, ...]) -> str:
    for old, new in changes:
        if old not in text:
            raise ValueError(f"{old!r} is not in the stack")
        text = text.replace(old, new, 1)
    return text


_UNTOUCHED = {"running": GOES_ON, "queued": STAYS_QUEUED, "sessions": STAYS_OPEN, "data": STAYS}

EDITS = (
    Audited(
        id="kms-added-loses-the-queue",
        stack="burst",
        changes=((_BURST_ZONES, f"{_BURST_ZONES}, kms_key: alias/foo"),),
        worst="replace",
        says={"running": "are lost", "queued": "are lost", "sessions": "with srun lose their jobs"},
        steps=("squeue --all", "pulumi up"),
    ),
    Audited(
        id="kms-added-replaces-login",
        stack="burst",
        base=(_LOGIN, _SSH),
        changes=((_BURST_ZONES, f"{_BURST_ZONES}, kms_key: alias/x"),),
        says={"queued": "are lost", "sessions": "on login machines that stop or leave end"},
        never=("stay open",),
        steps=("squeue --all",),
    ),
    Audited(
        id="kms-added-with-state",
        stack="first",
        changes=((_BURST_ZONES, f"{_BURST_ZONES}, kms_key: alias/foo"),),
        worst="data-loss",
        says={
            "refused": "is protected: /srv/gpucluster-state",
            "data": f"on /srv/gpucluster-state is lost: an empty one replaces it; {NOT_PUT_BACK}",
            "queued": "are lost",
        },
        never=("on machines that are replaced",),
        steps=("squeue --all", "tar -C /", "pulumi state unprotect", "pulumi up"),
    ),
    Audited(
        id="kms-changed-with-data",
        stack="research",
        changes=(("alias/research", "alias/other"),),
        worst="data-loss",
        says={
            "refused": "is protected: /srv/gpucluster-state, /apps, /home and /data",
            "data": NOT_PUT_BACK,
            "running": "are lost",
        },
        never=("on machines that are replaced",),
        steps=("tar -C /", "pulumi state unprotect", "pulumi up"),
    ),
    Audited(
        id="kms-removed-with-data",
        stack="research",
        changes=(("  kms_key: alias/research", "  #kms_key: alias/research"),),
        worst="data-loss",
        says={"refused": "is protected", "data": "is lost"},
        steps=("pulumi state unprotect", "pulumi up"),
    ),
    Audited(
        id="beegfs-removed",
        stack="research",
        changes=((_ARCHIVE, ""),),
        worst="new-nodes",
        says={
            "running": "machines that run keep their mount of /archive",
            "queued": "on nodes that are launched later /archive is not mounted",
            "data": "of what was mounted at /archive stays there",
        },
        never=("lost", "fail"),
        no_steps=("tar -C /",),
    ),
    Audited(
        id="nfs-server-removed",
        stack="research",
        base=((_APPS, _SERVER),),
        changes=((_SERVER, "  #"),),
        worst="new-nodes",
        says={"running": "keep their mount of /apps", "data": "stays there, and is not copied"},
        never=("lost", "fail"),
        no_steps=("tar -C /",),
    ),
    Audited(
        id="efs-of-the-site-removed",
        stack="research",
        base=(("efs: {}}", "efs: {id: fs-0123456789abcdef0}}"),),
        changes=((_HOME.replace("efs: {}}", "efs: {id: fs-0123456789abcdef0}}"), ""),),
        worst="new-nodes",
        says={"running": "keep their mount of /home", "data": "stays there, and is not copied"},
        never=("lost", "fail"),
        no_steps=("tar -C /",),
    ),
    Audited(
        id="own-efs-removed",
        stack="research",
        changes=((_HOME, ""),),
        worst="data-loss",
        says={
            "refused": "is protected: /home",
            "running": "those that use /home hang or fail",
            "data": "on /home is lost: it is deleted",
        },
        never=("on machines that are replaced", "take no new jobs"),
        steps=("tar -C /", "pulumi state unprotect", "pulumi up"),
    ),
    Audited(
        id="own-lustre-removed",
        stack="research",
        changes=((_LUSTRE, ""),),
        worst="data-loss",
        says={"refused": "is protected: /data", "data": "on /data is lost: it is deleted"},
        steps=("tar -C /", "pulumi state unprotect", "pulumi up"),
    ),
    Audited(
        id="own-efs-becomes-the-site's",
        stack="research",
        changes=(("efs: {}}", "efs: {id: fs-0123456789abcdef0}}"),),
        worst="data-loss",
        says={"refused": "is protected: /home", "queued": "/home is what the new spec mounts"},
        never=("/home is not mounted",),
        steps=("tar -C /", "pulumi state unprotect", "pulumi up"),
    ),
    Audited(
        id="role-of-jobs-removed",
        stack="research",
        changes=(("  jobs: {read", "  #jobs: {read"),),
        worst="new-nodes",
        says={"running": "the keys for S3 that they have are refused", "sessions": STAYS_OPEN},
        never=("lost", "replaced"),
    ),
    Audited(
        id="login-removed",
        stack="research",
        changes=(("login: {machine: m7i.xlarge, count: 1}", ""),),
        worst="restart",
        says={"running": GOES_ON, "sessions": "on login machines that stop or leave end"},
        is_exactly={"queued": STAYS_QUEUED},
        never=("lost", STAYS_OPEN),
    ),
    Audited(
        id="link-to-s3-changed",
        stack="research",
        changes=(('s3://example-data/sets", import', 's3://example-data/sets2", import'),),
        worst="live",
        is_exactly={"running": GOES_ON, "queued": STAYS_QUEUED, "sessions": STAYS_OPEN},
        never=("lost", "replaced"),
    ),
    Audited(
        id="nfs-server-changed",
        stack="research",
        base=((_APPS, _SERVER),),
        changes=(("192.0.2.5, export: /srv/apps}}", "192.0.2.6, export: /srv/apps}}"),),
        says={
            "running": "machines that run keep their mount of /apps until they start anew",
            "queued": "on nodes that are launched later /apps is what the new spec mounts",
        },
        never=("take no new jobs", "removed or changed"),
    ),
    Audited(
        id="mount-options-changed",
        stack="research",
        changes=(("options: [rw]", "options: [rw, noatime]"),),
        says={"running": "machines that run keep their mount of /archive until they start anew"},
        never=("take no new jobs", "removed or changed", "finish"),
    ),
    Audited(
        id="containers-changed",
        stack="research",
        changes=(("containers: pyxis", "containers: apptainer"),),
        worst="drain",
        is_exactly={
            "running": "go on; a step with --container-image fails",
            "queued": "stay in the queue; those that were submitted with --container-image start outside of their container",
            "sessions": "stay open; sbatch and srun refuse --container-image",
        },
        never=("take no new jobs", "finish", "anew"),
        steps=("scancel JOB", "pulumi up"),
        no_steps=("scontrol update nodename", "test -e"),
    ),
    Audited(
        id="containers-of-pyxis-added",
        stack="research",
        base=(("  containers: pyxis\n", ""),),
        changes=(("  private_tmp: ", "  containers: pyxis\n  private_tmp: "),),
        worst="drain",
        says={
            "running": "on a node without Pyxis slurmd ends when the bundle is applied",
            "sessions": "on machines without Pyxis, sbatch and srun fail",
        },
        is_exactly={"queued": STAYS_QUEUED},
        never=("anew", "outside"),
        steps=("test -e /usr/local/lib/slurm/spank_pyxis.so", "pulumi up"),
        no_steps=("scontrol update nodename", "scancel"),
    ),
    Audited(
        id="containers-of-apptainer-removed",
        stack="research",
        base=(("containers: pyxis", "containers: apptainer"),),
        changes=(("  containers: apptainer\n", ""),),
        worst="live",
        is_exactly=_UNTOUCHED,
    ),
    Audited(
        id="slurm-newer-with-login",
        stack="burst",
        base=(_LOGIN, _SSH),
        changes=(('version: "24.11"', 'version: "26.05"'), ("accept: [{id: slurm-support", "#accept: [{id:")),
        says={
            "running": "must have ended before",
            "queued": "are lost",
            "sessions": "on login machines that stop or leave end",
        },
        never=(STAYS_OPEN,),
        steps=("squeue --all", "scontrol update partitionname=PARTITION state=down", "pulumi up"),
    ),
    Audited(
        id="cidr-with-login",
        stack="burst",
        base=(_LOGIN, _SSH),
        changes=(("10.42.0.0/16", "10.43.0.0/16"),),
        says={"queued": "are lost", "sessions": "on login machines that stop or leave end"},
        never=(STAYS_OPEN,),
    ),
    Audited(
        id="region",
        stack="burst",
        changes=(
            ("region: us-east-1", "region: us-west-2"),
            ("[us-east-1a, us-east-1b]", "[us-west-2a, us-west-2b]"),
        ),
        worst="data-loss",
        is_exactly={
            "running": "must have ended before: let them end, or cancel them",
            "queued": "are lost with slurmctld's state; users submit them again",
        },
        never=("old cluster", "bundle"),
        no_steps=("gpucluster bundle",),
    ),
    Audited(
        id="slurm-older",
        stack="first",
        changes=(('version: "26.05"', 'version: "24.11"'),),
        worst="data-loss",
        says={
            "running": "must have ended before",
            "queued": "the older slurmctld ends when it reads the newer state",
        },
        never=("start when", "removed fail", "keeps its state"),
        steps=(
            "squeue --all",
            "scontrol update partitionname=PARTITION state=down",
            "pulumi up",
            "mkdir /root/slurmctld-newer && find /var/spool/slurmctld -mindepth 1",
            "gpucluster status first --wait",
            "gpucluster pool resume POOL -c first",
        ),
    ),
    Audited(
        id="slurm-older-with-accounting",
        stack="research",
        changes=(('version: "26.05"', 'version: "24.11"'),),
        says={"data": "in the accounting database, what only the newer slurmdbd knows is lost"},
    ),
    Audited(
        id="slurm-other-than-the-fixed-image",
        stack="research",
        base=(_OS_IMAGE,),
        changes=(('version: "26.05"', 'version: "24.11"'),),
        says={
            "refused": "the image ami-0123456789abcdef0 stays, and it alone decides which Slurm runs",
            "running": GOES_ON,
            "queued": STAYS_QUEUED,
        },
        never=("are lost", "must have ended"),
        no_steps=("squeue --all", "mkdir"),
    ),
    Audited(
        id="cidr-with-lustre",
        stack="research",
        changes=(("10.50.0.0/16", "10.51.0.0/16"),),
        says={"refused": "is protected: /data", "data": "on /data is lost: an empty one replaces it"},
        is_exactly={"running": "must have ended before: let them end, or cancel them"},
        never=("that use what is removed",),
        steps=("tar -C /", "pulumi state unprotect", "pulumi up"),
    ),
    Audited(
        id="zone-removed",
        stack="burst",
        changes=(("zones: [us-east-1a, us-east-1b]", "zones: [us-east-1a]"),),
        worst="stop-fleet",
        is_exactly={"running": "must have ended before: let them end, or cancel them"},
        no_steps=("gpucluster bundle",),
    ),
    Audited(
        id="host-removed",
        stack="lab",
        changes=(
            ('leaf2: "gpu[03-04]"', 'leaf2: "gpu03"'),
            ('"gpu[01-04]", addresses: "192.0.2.[11-14]"', '"gpu[01-03]", addresses: "192.0.2.[11-13]"'),
        ),
        worst="stop-fleet",
        is_exactly={"running": "must have ended before: let them end, or cancel them"},
        no_steps=("gpucluster bundle",),
    ),
    Audited(
        id="export-of-the-head-removed",
        stack="research",
        changes=((_APPS, "  #"),),
        worst="data-loss",
        says={"refused": "is protected: /apps", "sessions": "started by hand", "data": "on /apps is lost"},
        never=("that use what is removed",),
        steps=("tar -C /", "pulumi state unprotect", "pulumi up", "aws ec2 start-instances"),
    ),
    Audited(
        id="state-removed",
        stack="first",
        changes=((", state: 100GiB", ""),),
        worst="data-loss",
        says={
            "refused": "is protected: /srv/gpucluster-state",
            "running": "are lost",
            "queued": "are lost",
            "data": f"on /srv/gpucluster-state is lost: it is deleted; {NOT_PUT_BACK}",
        },
        never=(GOES_ON, STAYS_QUEUED),
        steps=("squeue --all", "pulumi state unprotect", "pulumi up", "aws ec2 start-instances"),
    ),
    Audited(
        id="state-smaller",
        stack="first",
        changes=(("100GiB", "50GiB"),),
        says={"refused": "`pulumi up` fails: AWS refuses a smaller volume (/srv/gpucluster-state)"},
        is_exactly=_UNTOUCHED,
        never=("are lost", "empty volume"),
        no_steps=("pulumi up", "tar -C /"),
    ),
    Audited(
        id="lustre-grows",
        stack="research",
        changes=(("size: 9600GiB", "size: 12000GiB"),),
        worst="restart",
        is_exactly={"running": "go on; those that use /data wait while it changes", "queued": STAYS_QUEUED},
        never=("slurmctld restarts",),
    ),
    Audited(
        id="no-public-subnets",
        stack="burst",
        changes=((_BURST_ZONES, "zones: [us-east-1a, us-east-1b], nat: none}"),),
        worst="live",
        is_exactly={"queued": STAYS_QUEUED, "sessions": STAYS_OPEN, "data": STAYS},
        says={"running": "go on; connections to the internet end where the NAT gateway changes"},
        no_steps=("scontrol",),
    ),
    Audited(
        id="own-disks-of-nodes-no-longer-mounted",
        stack="research",
        changes=(("  - {mount: /scratch, nvme: {}}", "  #"), ("  private_tmp: {path: /scratch}", "  #")),
        says={"queued": "on nodes that are launched later /scratch is not mounted"},
        is_exactly={"data": STAYS},
    ),
    Audited(
        id="ssh-opened-moves-login",
        stack="burst",
        base=(_LOGIN,),
        changes=(_SSH,),
        worst="replace",
        says={"sessions": "on login machines that stop or leave end"},
        is_exactly={"running": GOES_ON},
    ),
    Audited(
        id="new-head-with-state-applies-a-smaller-pool-at-once",
        stack="first",
        changes=(
            (_BURST_ZONES, f"{_BURST_ZONES}, image: {{ami: ami-0123456789abcdef0}}"),
            ("max: 16}", "max: 8}"),
        ),
        says={"queued": "is ended by Slurm"},
        is_exactly={
            "running": "on nodes and in partitions that are removed are ended by Slurm: a new head applies the bundle at once; "
            "others go on, a job that reads a file system of the head waits for it"
        },
        no_steps=("gpucluster bundle",),
    ),
    Audited(
        id="new-head-with-state-applies-other-machines-at-once",
        stack="first",
        changes=(
            (_BURST_ZONES, f"{_BURST_ZONES}, image: {{ami: ami-0123456789abcdef0}}"),
            ("spot, machines: [p5en.48xlarge]", "spot, machines: [p5.48xlarge]"),
            ("on-demand, machines: [p5en.48xlarge]", "on-demand, machines: [p5.48xlarge]"),
        ),
        is_exactly={
            "running": "on nodes with other CPUs or GPUs are requeued: a new head applies the bundle at once; "
            "others go on, a job that reads a file system of the head waits for it"
        },
    ),
    Audited(
        id="all-pools-of-partitions-renamed",
        stack="research",
        changes=(
            ("  - name: small ", "  - name: tiny "),
            ("pools: [small]", "pools: [tiny]"),
            ("only the pool `small`", "only the pool `tiny`"),
        ),
        says={
            "queued": "those of debug, all of whose nodes are removed or changed, wait until the bundle is applied"
        },
    ),
    Audited(
        id="pool-shrinks",
        stack="research",
        changes=(("nodes: {min: 0, max: 8}", "nodes: {min: 0, max: 3}"),),
        says={"queued": "those in debug that need more nodes than are left wait with PartitionNodeLimit"},
        never=("those of debug",),
    ),
    Audited(
        id="qos-preempts-another",
        stack="research",
        changes=(
            ("preempts: [normal]", "preempts: [normal, debug]"),
            ("qos: [normal, urgent]", "qos: [normal, urgent, debug]"),
        ),
        worst="live",
        says={"running": "those of the QOS debug may be preempted by a waiting job of the QOS urgent"},
    ),
    Audited(
        id="preemption-cancels",
        stack="research",
        changes=(("mode: requeue, exempt", "mode: cancel, exempt"),),
        says={"running": "those that are preempted are ended, and not requeued any more"},
    ),
    Audited(
        id="partition-of-a-higher-tier",
        stack="research",
        changes=(("max_time: 1d, exclusive: true}", "max_time: 1d, exclusive: true, tier: 30}"),),
        worst="live",
        is_exactly={"running": "go on"},
    ),
    Audited(
        id="partition-allows-one-qos",
        stack="research",
        changes=(("tier: 20, qos: debug}", "tier: 20, qos: debug, allow_qos: [urgent]}"),),
        says={"queued": "may not use the partition wait with PartitionConfig"},
    ),
    Audited(
        id="maintenance-planned",
        stack="research",
        changes=(
            (
                "  requeue: true\n",
                "  requeue: true\n  reservations: [{name: patch, pools: [h100, h200], start: 2099-12-01T08:00Z, duration: 4h, maint: true}]\n",
            ),
        ),
        says={"queued": "those that would run into a reservation wait until its end"},
    ),
    Audited(
        id="heartbeat-shorter-beside-another-script",
        stack="steady",
        changes=(("{after: 30m, requeue", "{after: 5m, requeue"), ("/opt/site/leave", "/opt/site/go")),
        says={
            "running": "those that touch their heartbeat file less often than the new time count as hung",
        },
        never=("go on: only nodes",),
    ),
    Audited(
        id="containers-removed-beside-a-renamed-pool",
        stack="research",
        changes=(
            ("  containers: pyxis\n", ""),
            ("  - name: small ", "  - name: tiny "),
            ("pools: [small]", "pools: [tiny]"),
            ("only the pool `small`", "only the pool `tiny`"),
        ),
        says={"running": "a step with --container-image fails"},
        never=("anew",),
        steps=("scancel JOB", "pulumi up", "gpucluster bundle show"),
    ),
    Audited(
        id="volume-smaller-beside-a-smaller-pool",
        stack="research",
        changes=(("size: 200GiB", "size: 100GiB"), ("nodes: {min: 0, max: 8}", "nodes: {min: 0, max: 3}")),
        says={"refused": "AWS refuses a smaller volume (/apps)"},
        steps=("# keep the size of /apps", "pulumi up", "gpucluster bundle show"),
    ),
    Audited(
        id="mount-with-a-word-of-the-steps",
        stack="research",
        base=(("mount: /apps", "mount: /RENAMED"),),
        changes=(("size: 200GiB", "size: 100GiB"),),
        says={"refused": "AWS refuses a smaller volume (/RENAMED)"},
        steps=("# keep the size of /RENAMED in the spec",),
    ),
    Audited(
        id="user-renamed",
        stack="research",
        changes=(("{name: speech, uid", "{name: sound, uid"), ("[vision, speech]", "[vision, sound]")),
        says={"sessions": "until the account speech is renamed"},
        steps=("pulumi up", "usermod -l sound -d /home/sound -e '' speech && groupmod -n sound speech"),
    ),
    Audited(
        id="uids-exchanged",
        stack="research",
        changes=(
            ("vision, uid: 5001", "vision, uid: 5009"),
            ("speech, uid: 5002", "speech, uid: 5001"),
            ("vision, uid: 5009", "vision, uid: 5002"),
        ),
        steps=("pulumi up", "usermod -u SPARE OTHER", "usermod -u UID USER"),
    ),
    Audited(
        id="stops-the-fleet",
        stack="steady",
        changes=(('slurm: {version: "26.05"}', 'slurm: {version: "26.05", private_tmp: false}'),),
        worst="stop-fleet",
        steps=(
            "scontrol update partitionname=PARTITION state=down",
            "squeue --states=running",
            "gpucluster pool pause POOL -c steady",
            "scontrol update nodename=ALL state=power_down_asap",
            "pulumi up",
            "gpucluster status steady --wait",
            "gpucluster pool resume POOL -c steady",
            "scontrol update partitionname=PARTITION state=up",
        ),
    ),
    Audited(
        id="home-on-another-file-system",
        stack="research",
        changes=(("efs: {}}", "nfs: {server: 192.0.2.5, export: /srv/home}}"),),
        says={"refused": "is protected: /home"},
        steps=("pulumi up", "systemctl reboot    # as root, on the head and then on login machines"),
    ),
)

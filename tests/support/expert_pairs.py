"""Pairs of specs with the update class that an expert gives each, and why: the reference for `gitops`.

To change a field's class: find its rows here first; the class is what an operator would tell the users.
"""

from dataclasses import dataclass
from pathlib import Path

from gpucluster.spec import UpdateClass
from support.builders import SPEC, a_spec_text

SPOT = "      - {from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}\n"
DEMAND = "      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n"
SECOND_POOL = "  - {name: a100, nodes: 2, capacity: [{from: on-demand, machines: [p4d.24xlarge]}]}\n"
SECOND = a_spec_text(
    ("partitions:\n", SECOND_POOL + "partitions:\n"),
    ("max_time: 1d}\n", "max_time: 1d}\n  - {name: old, pools: [a100]}\n"),
)
STACKS = Path(__file__).parents[2] / "stacks"
LAB, KUBE, STEADY, RESEARCH = (
    (STACKS / name).read_text() for name in ("lab.yaml", "kube.yaml", "steady.yaml", "research.yaml")
)
FIVE_HOSTS = (
    LAB.replace("gpu[01-04]", "gpu[01-05]").replace("[11-14]", "[11-15]").replace("gpu[03-04]", "gpu[03-05]")
)
# One more address at the front: every host gets the address of its neighbour.
SHIFTED = FIVE_HOSTS.replace("[11-15]", "[20,11-14]")
TURNED = SECOND.replace(SECOND_POOL, "").replace("pools:\n  - name", f"pools:\n{SECOND_POOL}  - name")
LARGER = KUBE.replace("2400GiB", "4800GiB")
NO_STORAGE = "".join(line for line in KUBE.splitlines(True) if not line.startswith("storage"))
BOTH = NO_STORAGE.replace(
    "kubernetes:\n", 'slurm: {version: "26.05"}\nhead: {machine: m7i.2xlarge}\nkubernetes:\n'
)
BOTH = BOTH.replace("name: tune,", "name: tune, runs: kubernetes,")
BOTH = BOTH.replace("name: serve,", "name: serve, runs: kubernetes,") + (
    "  - {name: train, runs: slurm, nodes: 2, capacity: [{from: on-demand, machines: [p5.48xlarge]}]}\n"
    "partitions: [{name: train, pools: [train]}]\n"
)
NO_KUBERNETES = BOTH[: BOTH.index("kubernetes:\n")] + BOTH[BOTH.index("pools:\n") :]
ONLY_SLURM = "".join(
    line
    for line in NO_KUBERNETES.splitlines(True)
    if not line.startswith(("  - {name: tune", "  - {name: serve"))
)
THREE_ZONES = a_spec_text(("[us-east-2a, us-east-2b]", "[us-east-2a, us-east-2b, us-east-2c]"))
ALWAYS_ON = a_spec_text(("min: 0", "min: 2"))


@dataclass(frozen=True, slots=True)
class Pair:
    """`says` names the change; `why` is the expert's reason."""

    says: str
    old: str
    new: str
    expected: UpdateClass | None
    why: str


def _of_steady(
    says: str, why: str, old: str, new: str, expected: UpdateClass | None = UpdateClass.LIVE
) -> Pair:
    if STEADY.count(old) != 1:
        raise ValueError(f"{old!r} stands {STEADY.count(old)} times in the stack")
    return Pair(says, STEADY, STEADY.replace(old, new), expected, why)


def _of_research(says: str, expected: UpdateClass | None, why: str, old: str, new: str) -> Pair:
    if RESEARCH.count(old) != 1:
        raise ValueError(f"{old!r} stands {RESEARCH.count(old)} times in the stack")
    return Pair(says, RESEARCH, RESEARCH.replace(old, new), expected, why)


def _of_spec(says: str, expected: UpdateClass | None, why: str, *changes: tuple[str, str]) -> Pair:
    return Pair(says, SPEC, a_spec_text(*changes), expected, why)


RESERVATION = "slurm:\n  reservations: [{name: patch, pools: [h200], start: 2026-12-01T08:00Z, duration: 4h, maint: true}]\n"

PAIRS = (
    _of_research(
        "Pyxis leaves",
        UpdateClass.DRAIN,
        "a queued job that asked for a container starts outside of it",
        "  containers: pyxis\n",
        "",
    ),
    Pair(
        "Pyxis comes",
        RESEARCH.replace("  containers: pyxis\n", ""),
        RESEARCH,
        UpdateClass.DRAIN,
        "slurmd ends on a machine without the plugin",
    ),
    Pair(
        "Apptainer leaves",
        RESEARCH.replace("containers: pyxis", "containers: apptainer"),
        RESEARCH.replace("  containers: pyxis\n", ""),
        UpdateClass.LIVE,
        "jobs start it themselves, and Slurm does not know it",
    ),
    _of_spec(
        "a maintenance window", UpdateClass.LIVE, "running jobs go on into it", ("slurm:\n", RESERVATION)
    ),
    Pair(
        "a maintenance window at another time, each week",
        a_spec_text(("slurm:\n", RESERVATION)),
        a_spec_text(
            (
                "slurm:\n",
                RESERVATION.replace("08:00Z", "09:00Z").replace("maint: true", "maint: true, repeat: weekly"),
            )
        ),
        UpdateClass.LIVE,
        "slurmctld changes it, or the head deletes it and makes it again; no job is touched (tests/slurm/test_reservations.py)",
    ),
    _of_spec("a comment", None, "not read", ("schema: 1\n", "schema: 1  # ours\n")),
    _of_spec("another spelling of the same time", None, "the same five minutes", ("idle: 5m", "idle: 300s")),
    _of_spec(
        "an anchor of the user's",
        None,
        "keys that begin with x- are not read",
        ("slurm:\n", "x-a: 1\nslurm:\n"),
    ),
    _of_spec("a longer idle time", UpdateClass.LIVE, "the daemon reads it anew", ("idle: 5m", "idle: 10m")),
    _of_spec(
        "a longer boot timeout",
        UpdateClass.LIVE,
        "ResumeTimeout is read at a reconfigure",
        ("idle: 5m\n", "idle: 5m\n    boot_timeout: 30m\n"),
    ),
    _of_spec(
        "a higher max",
        UpdateClass.LIVE,
        "slots join at the end; a reconfigure adds them",
        ("max: 16", "max: 32"),
    ),
    _of_spec(
        "a lower max",
        UpdateClass.DRAIN,
        "Slurm kills what runs on a node that leaves its files",
        ("max: 16", "max: 8"),
    ),
    _of_spec("always-on nodes", UpdateClass.LIVE, "two slots are not let go any more", ("min: 0", "min: 2")),
    Pair(
        "no always-on nodes any more", ALWAYS_ON, SPEC, UpdateClass.LIVE, "they end when idle, as all others"
    ),
    _of_spec(
        "a higher max of a source", UpdateClass.LIVE, "it bounds launches, not nodes", ("max: 4", "max: 8")
    ),
    _of_spec(
        "a longer max_time",
        UpdateClass.LIVE,
        "a job keeps the limit that it has",
        ("max_time: 1d", "max_time: 2d"),
    ),
    _of_spec("no default partition", UpdateClass.LIVE, "only submissions", ("default: true, ", "")),
    Pair("a pool and its partition", SPEC, SECOND, UpdateClass.LIVE, "nothing that is there is touched"),
    Pair(
        "a pool and its partition less",
        SECOND,
        SPEC,
        UpdateClass.DRAIN,
        "close the partition, let its jobs end, then take the nodes away",
    ),
    _of_spec(
        "a pool's other name",
        UpdateClass.DRAIN,
        "nodes are called after it: one pool goes, another comes",
        ("name: h200", "name: big"),
        ("pools: [h200]", "pools: [big]"),
    ),
    _of_spec(
        "a partition's other name",
        UpdateClass.DRAIN,
        "jobs stand in the partition that goes",
        ("name: gpu", "name: train"),
    ),
    _of_spec(
        "one machine less",
        UpdateClass.NEW_NODES,
        "a node that is up stays; no other of its kind comes",
        ("[p5en.48xlarge, p5e.48xlarge]", "[p5en.48xlarge]"),
    ),
    Pair(
        "one machine more, at the end",
        a_spec_text(("[p5en.48xlarge, p5e.48xlarge]", "[p5en.48xlarge]")),
        SPEC,
        UpdateClass.NEW_NODES,
        "asked only when the first is refused",
    ),
    _of_spec(
        "sources in another order",
        UpdateClass.NEW_NODES,
        "they are tried in order, by each launch anew",
        (SPOT + DEMAND, DEMAND + SPOT),
    ),
    _of_spec("one source less", UpdateClass.NEW_NODES, "what it gave stays until idle", (DEMAND, "")),
    _of_spec(
        "another GPU in the same pool",
        UpdateClass.DRAIN,
        "the node's line changes: Slurm refuses a node that does not match it",
        ("machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p5.48xlarge]"),
        ("machines: [p5en.48xlarge], max: 4", "machines: [p5.48xlarge], max: 4"),
    ),
    _of_spec(
        "a pool in one zone only",
        UpdateClass.DRAIN,
        "the other zone's slots leave Slurm's files",
        ("[p5en.48xlarge, p5e.48xlarge]}", "[p5en.48xlarge, p5e.48xlarge], zones: [us-east-2a]}"),
        ("max: 4}", "max: 4, zones: [us-east-2a]}"),
    ),
    Pair(
        "a further zone",
        SPEC,
        THREE_ZONES,
        UpdateClass.LIVE,
        "its own subnet and slots; the network was cut so that nothing moves",
    ),
    Pair(
        "a zone less",
        THREE_ZONES,
        SPEC,
        UpdateClass.STOP_FLEET,
        "AWS does not delete a subnet in which anything runs",
    ),
    _of_spec(
        "zones in another order",
        UpdateClass.REPLACE,
        "the head stands in the first zone and cannot be moved: it is made anew",
        ("[us-east-2a, us-east-2b]", "[us-east-2b, us-east-2a]"),
    ),
    _of_spec(
        "another machine for the head",
        UpdateClass.RESTART,
        "stopped, changed and started; jobs run on without it",
        ("machine: m7i.2xlarge", "machine: m7i.xlarge"),
    ),
    _of_spec(
        "another network",
        UpdateClass.REPLACE,
        "a VPC keeps its range for life",
        ("10.42.0.0/16", "10.43.0.0/16"),
    ),
    _of_spec(
        "another region",
        UpdateClass.DATA_LOSS,
        "nothing moves between regions: all is made anew, and what was stored is gone",
        ("region: us-east-2", "region: us-west-2"),
        ("[us-east-2a, us-east-2b]", "[us-west-2a, us-west-2b]"),
    ),
    Pair("a further host", LAB, FIVE_HOSTS, UpdateClass.LIVE, "a reconfigure, and one host more"),
    Pair("a host less", FIVE_HOSTS, LAB, UpdateClass.STOP_FLEET, "it leaves the topology, too"),
    Pair(
        "less memory on hosts",
        LAB,
        LAB.replace("2000GiB", "1000GiB"),
        UpdateClass.DRAIN,
        "the nodes' line changes",
    ),
    Pair(
        "another head among the hosts",
        LAB,
        LAB.replace("ctl0", "ctl1"),
        UpdateClass.STOP_FLEET,
        "the queue moves while nothing runs",
    ),
    Pair(
        "pools in another order",
        SECOND,
        TURNED,
        UpdateClass.LIVE,
        "Slurm's files change, and which of two alike it fills first",
    ),
    _of_spec(
        "all zones, written out",
        UpdateClass.NONE,
        "that is what no choice means",
        (
            "machines: [p5en.48xlarge], max: 4",
            "machines: [p5en.48xlarge], max: 4, zones: [us-east-2a, us-east-2b]",
        ),
    ),
    Pair(
        "another address of the head among the hosts",
        LAB,
        LAB.replace("192.0.2.10", "192.0.2.9"),
        UpdateClass.STOP_FLEET,
        "no machine is destroyed",
    ),
    Pair(
        "addresses shifted by a further host", LAB, SHIFTED, UpdateClass.DRAIN, "each name is another machine"
    ),
    _of_steady(
        "another reservation",
        "a node that is up stays in the old one",
        "cr-0123456789abcdef0",
        "cr-0fedcba9876543210",
        UpdateClass.NEW_NODES,
    ),
    _of_steady(
        "what was bought ahead instead of by the hour",
        "it is asked first by each launch from now on; no node moves",
        "from: reservation, id: cr-0123456789abcdef0,",
        "from: on-demand,",
        UpdateClass.NEW_NODES,
    ),
    _of_steady(
        "a capacity block instead of a reservation",
        "a node that is up stays where it is",
        "from: reservation, id: cr-0123456789abcdef0,",
        "from: capacity-block, id: cr-0fedcba9876543210,",
        UpdateClass.NEW_NODES,
    ),
    _of_steady(
        "a higher price for spot",
        "EC2 keeps to the price at which a machine was asked for",
        "max_price: 40 USD/h",
        "max_price: 50 USD/h",
        UpdateClass.NEW_NODES,
    ),
    _of_steady(
        "any price for spot",
        "the same: only launches know it",
        ", max_price: 40 USD/h",
        "",
        UpdateClass.NEW_NODES,
    ),
    _of_steady("a further spare", "one idle node more is kept up", "spares: 1", "spares: 2"),
    _of_steady("no spares any more", "the idle ones end in their time", "    spares: 1", "    # spares: 1"),
    _of_steady("another signal", "the daemon sends it", "signal: USR1", "signal: USR2"),
    _of_steady("a longer lead", "the daemon counts it", "lead: 20s", "lead: 40s"),
    _of_steady(
        "another script before a machine goes",
        "a node reads its bundle once, as it boots",
        "script: /opt/site/leave",
        "script: /opt/site/bye",
        UpdateClass.NEW_NODES,
    ),
    Pair(
        "a termination script where there was none",
        STEADY.replace(
            "    termination: {signal: USR1, lead: 20s, grace: 90s, script: /opt/site/leave}\n", ""
        ),
        STEADY,
        UpdateClass.NEW_NODES,
        "nodes that are up do not know of the script",
    ),
    _of_steady(
        "a termination by default",
        "the defaults are the daemon's",
        "    termination: {signal: TERM}\n",
        "",
    ),
    _of_steady("hung jobs only told", "the daemon does less", "requeue: true", "requeue: false"),
    _of_steady("hung jobs later", "the daemon waits", "after: 30m", "after: 1h"),
    _of_steady("a breaker that trips sooner", "the daemon counts", "boots: 6", "boots: 3"),
    _of_steady("a larger budget", "the daemon launches on", "monthly: 250000 USD", "monthly: 300000 USD"),
    _of_steady("an earlier stop", "no job is ended by it", "stop_scaling_at: 100%", "stop_scaling_at: 90%"),
    _of_steady(
        "no budget",
        "nothing stops scaling any more",
        "budget: {monthly: 250000 USD, warn_at: 80%, stop_scaling_at: 100%}\n",
        "",
    ),
    _of_steady("the same amount with cents", "the same money", "250000 USD", "250000.00 USD", None),
    _of_steady(
        "a default no longer written out",
        "that is what none means",
        ", stop_scaling_at: 100%",
        "",
        UpdateClass.NONE,
    ),
    Pair("a larger Lustre", KUBE, LARGER, UpdateClass.RESTART, "it stalls while it grows"),
    Pair("a smaller Lustre", LARGER, KUBE, UpdateClass.DATA_LOSS, "FSx never shrinks: it is made anew"),
    Pair(
        "an older Kubernetes",
        KUBE,
        KUBE.replace("1.36", "1.35"),
        UpdateClass.REPLACE,
        "EKS refuses to go back: a new control plane",
    ),
    Pair(
        "another GPU for nodes of Kubernetes",
        KUBE,
        KUBE.replace(
            "nodes: 4, capacity: [{from: on-demand, machines: [p4de.24xlarge]}]",
            "nodes: 4, capacity: [{from: on-demand, machines: [p5.48xlarge]}]",
        ),
        UpdateClass.DRAIN,
        "those that stand are none of the pool any more",
    ),
    Pair(
        "Kubernetes' zone moves",
        KUBE,
        KUBE.replace("[us-west-2a]}", "[us-west-2b, us-west-2a]}"),
        UpdateClass.DRAIN,
        "nodes that stand always are in the first",
    ),
    Pair(
        "Slurm beside Kubernetes", NO_STORAGE, BOTH, UpdateClass.LIVE, "pools say what runs them, and it did"
    ),
    Pair("Slurm leaves", BOTH, NO_STORAGE, UpdateClass.DATA_LOSS, "the queue and its accounting go"),
    Pair(
        "Kubernetes leaves",
        BOTH,
        ONLY_SLURM,
        UpdateClass.DATA_LOSS,
        "the teams' namespaces go with it, and all that is in them",
    ),
    Pair("Kubernetes beside Slurm", ONLY_SLURM, BOTH, UpdateClass.LIVE, "no job of Slurm's is touched"),
    _of_research(
        "a further place that jobs read",
        UpdateClass.LIVE,
        "a right of the role",
        'read: ["s3://example-data/sets"]',
        'read: ["s3://example-data/sets", "s3://example-data/more"]',
    ),
    _of_research(
        "another place that jobs write",
        UpdateClass.LIVE,
        "a right of the role; keys that were handed out follow it",
        "s3://example-data/checkpoints",
        "s3://example-data/weights",
    ),
    _of_research(
        "the same folder with a slash",
        UpdateClass.NONE,
        "the same role",
        "s3://example-data/checkpoints",
        "s3://example-data/checkpoints/",
    ),
    _of_research(
        "no role for jobs",
        UpdateClass.NEW_NODES,
        "a node that is up keeps its agent's port open until it ends",
        "  jobs: {read:",
        "  # jobs: {read:",
    ),
    _of_research(
        "another tag",
        UpdateClass.NEW_NODES,
        "a node that runs keeps the tags of its launch",
        "cost-centre",
        "cost-center",
    ),
    _of_research(
        "an image by its id",
        UpdateClass.REPLACE,
        "an instance keeps its image for life: the head is made anew",
        "image: {os: ubuntu-24.04}",
        "image: {ami: ami-0123456789abcdef0}",
    ),
    _of_research(
        "the default image no longer written out",
        UpdateClass.NONE,
        "the same image",
        "  image: {os: ubuntu-24.04}",
        "  # image: {os: ubuntu-24.04}",
    ),
    _of_research(
        "a pool's own image",
        UpdateClass.NEW_NODES,
        "a node that is up keeps its own",
        "  - name: h100\n",
        "  - name: h100\n    image: {ami: ami-0123456789abcdef0}\n",
    ),
    _of_research(
        "a further address range",
        UpdateClass.LIVE,
        "a rule of a group",
        "[198.51.100.0/24]",
        "[198.51.100.0/24, 203.0.113.0/24]",
    ),
    _of_research("no Session Manager", UpdateClass.LIVE, "a right of the roles", ", ssm: true", ""),
    _of_research(
        "a further user",
        UpdateClass.LIVE,
        "living machines follow the list",
        "uid: 5004}",
        "uid: 5004}\n  - {name: graphs, uid: 5005}",
    ),
    _of_research("another key", UpdateClass.LIVE, "the same", "vision@example.org", "vision@laptop"),
    _of_research(
        "another uid", UpdateClass.DRAIN, "files and jobs have the old one", "uid: 5003", "uid: 5013"
    ),
    _of_research(
        "a larger volume for the state",
        UpdateClass.LIVE,
        "EBS grows under a running machine",
        "state: 100GiB",
        "state: 200GiB",
    ),
    _of_research(
        "a smaller volume for the state",
        UpdateClass.DATA_LOSS,
        "EBS never shrinks",
        "state: 100GiB",
        "state: 50GiB",
    ),
    _of_research(
        "no volume for the state", UpdateClass.DATA_LOSS, "the queue goes with it", ", state: 100GiB", ""
    ),
    Pair(
        "a volume for the state",
        RESEARCH.replace(", state: 100GiB", ""),
        RESEARCH,
        UpdateClass.RESTART,
        "slurmctld stops while its state moves",
    ),
    _of_research(
        "a second login machine", UpdateClass.LIVE, "it comes beside the first", "count: 1", "count: 2"
    ),
    _of_research(
        "another machine to log in to",
        UpdateClass.RESTART,
        "stopped, changed, started",
        "m7i.xlarge, count",
        "m7i.large, count",
    ),
    _of_research(
        "no login machine",
        UpdateClass.RESTART,
        "people are thrown off, jobs run on",
        "login: {machine: m7i.xlarge, count: 1}",
        "#",
    ),
    _of_research(
        "login in the other zone",
        UpdateClass.REPLACE,
        "a machine never moves",
        "count: 1}",
        "count: 1, zone: us-east-1b}",
    ),
    _of_research(
        "another EFS",
        UpdateClass.DATA_LOSS,
        "nothing moves between file systems",
        "efs: {}",
        "efs: {id: fs-0123456789abcdef0}",
    ),
    _of_research(
        "a Lustre in the other zone",
        UpdateClass.DATA_LOSS,
        "it is made anew there",
        "zone: us-east-1a\n",
        "zone: us-east-1b\n",
    ),
    _of_research("a slower Lustre", UpdateClass.RESTART, "it stalls while it changes", "1000MBps", "500MBps"),
    _of_research(
        "a link that follows more",
        UpdateClass.LIVE,
        "the association changes in place",
        "import: new",
        "import: [new, changed]",
    ),
    _of_research(
        "a larger export of the head",
        UpdateClass.LIVE,
        "the volume grows under it",
        "size: 200GiB",
        "size: 300GiB",
    ),
    _of_research(
        "no scratch any more",
        UpdateClass.DRAIN,
        "jobs write there",
        "  - {mount: /scratch, nvme: {}}",
        "  # - {mount: /scratch, nvme: {}}",
    ),
    _of_research(
        "a NAT gateway a zone",
        UpdateClass.LIVE,
        "routes change; open connections break",
        "us-east-1b]}   #",
        "us-east-1b], nat: per-zone}   #",
    ),
    _of_research(
        "nobody told of the budget", UpdateClass.LIVE, "a subscription", ", notify: [hpc@example.org]", ""
    ),
    _of_research("another reason", UpdateClass.NONE, "read by people", "it reads little", "nobody minds"),
    _of_research(
        "nodes without a placement group",
        UpdateClass.NEW_NODES,
        "only launches know it",
        "    idle: 5m\n",
        "    idle: 5m\n    placement: none\n",
    ),
    _of_spec(
        "the cluster's other name",
        UpdateClass.DATA_LOSS,
        "it is another cluster",
        ("name: burst", "name: rush"),
    ),
)

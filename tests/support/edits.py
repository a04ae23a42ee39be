"""Edits of a spec that `tests/sandbox/observe_edits.py` applies to a living cluster, under a running and a queued job.

`tests/recorded/edits.json` has what happened. An edit that the sandbox cannot apply, or not truthfully, says why.
"""

from dataclasses import dataclass

NAME = "edits"
USER = "vision"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHZpc2lvbnZpc2lvbnZpc2lvbnZpc2lvbnZpc2lvbnZp"
IMAGE_NAME = "edits-second"  # `observe_edits.py` makes it of the head
IMAGE = "ami-0dbabc11777c59ff0"  # its id in the sandbox, which is made from the name
SMALL = "  - {name: small, nodes: {min: 0, max: 2}, idle: 30m, capacity: [{from: on-demand, machines: [g6e.2xlarge]}]}\n"
SPARE = "  - {name: spare, nodes: {min: 0, max: 2}, idle: 30m, capacity: [{from: on-demand, machines: [g6e.2xlarge]}]}\n"
DEBUG = "  - {name: debug, pools: [small], default: true, max_time: 4h}\n"
NIGHT = "  - {name: night, pools: [spare], max_time: 8h}\n"
BASE = f"""schema: 1
name: {NAME}
aws:
  region: us-east-1
  network: {{cidr: 10.63.0.0/16, zones: [us-east-1a]}}
  tags: {{team: research}}
  jobs: {{read: ["s3://example-data/sets"]}}
access: {{ssh_from: [198.51.100.0/24], ssm: true}}
users:
  - {{name: vision, uid: 5001, keys: ["{KEY}"]}}
  - {{name: speech, uid: 5002}}
slurm:
  version: "26.05"
  accounting: {{database: local}}
  licenses: {{matlab: 4}}
head: {{machine: m7i.xlarge}}
login: {{machine: m7i.large, count: 1}}
storage:
  - {{mount: /home, nfs: {{from: head, size: 20GiB}}}}
pools:
{SMALL}{SPARE}partitions:
{DEBUG}{NIGHT}qos:
  - {{name: normal, priority: 100}}
accounts:
  - {{name: research, share: 3, qos: [normal], users: [vision, speech]}}
health: {{prolog: true, every: 12h}}
accept:
  - {{id: user-without-key, because: it lives as long as a test}}
  - {{id: head-state, because: it lives as long as a test}}
"""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: each of `changes` replaces a text of the base spec."""

    id: str
    says: str
    changes: tuple[tuple[str, str], ...]

    @property
    def old(self) -> str:
        return BASE

    @property
    def new(self) -> str:
        return edited(self.old, self.changes)


def edited(text: str, changes: tuple[tuple[str, str], ...]) -> str:
    """Replace each first text by its second one. ValueError if it does not stand there once."""
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times in the spec")
        text = text.replace(old, new)
    return text


def _edit(id_: str, says: str, *changes: tuple[str, str]) -> Edit:
    return Edit(id_, says, changes)


def _after(line: str, more: str) -> tuple[str, str]:
    return line, f"{line}{more}"


def _before_qos(partition: str) -> tuple[str, str]:
    return "qos:\n", f"{partition}qos:\n"


_SLURM = '  version: "26.05"\n'
_HOME = "  - {mount: /home, nfs: {from: head, size: 20GiB}}\n"
_SPEECH = "  - {name: speech, uid: 5002}\n"
_BASE_HEAD = "head: {machine: m7i.xlarge}"

EDITS = (
    _edit("comment", "a comment", ("schema: 1\n", "schema: 1  # ours\n")),
    _edit(
        "pool-grown",
        "a pool grows",
        ("name: small, nodes: {min: 0, max: 2}", "name: small, nodes: {min: 0, max: 4}"),
    ),
    _edit(
        "pool-shrunk",
        "a pool shrinks below the node of the running job",
        ("name: small, nodes: {min: 0, max: 2}", "name: small, nodes: {min: 0, max: 1}"),
    ),
    _edit(
        "pool-always-on",
        "a pool gets an always-on node",
        ("name: spare, nodes: {min: 0", "name: spare, nodes: {min: 1"),
    ),
    _edit(
        "machine-larger",
        "other machines in the pool of the running job",
        (SMALL, SMALL.replace("g6e.2xlarge", "g6e.12xlarge")),
    ),
    _edit(
        "machine-added",
        "a second machine type of the same shape of pool",
        (SMALL, SMALL.replace("[g6e.2xlarge]", "[g6e.2xlarge, g6e.4xlarge]")),
    ),
    _edit(
        "spot",
        "spot before on-demand",
        (SMALL, SMALL.replace("capacity: [", "capacity: [{from: spot, machines: [g6e.2xlarge]}, ")),
    ),
    _edit(
        "pool-added",
        "a pool and its partition are added",
        _after(SPARE, SPARE.replace("spare", "extra")),
        _before_qos(NIGHT.replace("night", "more").replace("spare", "extra")),
    ),
    _edit("pool-removed", "a pool without jobs and its partition are removed", (SPARE, ""), (NIGHT, "")),
    _edit(
        "partition-added",
        "a partition is added",
        _before_qos("  - {name: both, pools: [small, spare], max_time: 1h}\n"),
    ),
    _edit(
        "partition-removed",
        "the partition of the running and the queued job is removed",
        (DEBUG, ""),
        ("name: night, pools: [spare]", "name: night, default: true, pools: [small, spare]"),
    ),
    _edit("partition-renamed", "the partition of the jobs gets another name", ("name: debug", "name: trial")),
    _edit(
        "pool-leaves-partition",
        "the pool of the jobs leaves their partition",
        ("name: debug, pools: [small]", "name: debug, pools: [spare]"),
        ("name: night, pools: [spare]", "name: night, pools: [small]"),
    ),
    _edit("time-limit", "a shorter max_time", ("max_time: 4h", "max_time: 1h")),
    _edit(
        "default-partition",
        "another default partition",
        ("default: true, ", ""),
        ("name: night, ", "name: night, default: true, "),
    ),
    _edit("tier", "a partition gets a higher tier", ("max_time: 8h", "max_time: 8h, tier: 20")),
    _edit("exclusive", "a partition gives whole nodes", ("max_time: 4h", "max_time: 4h, exclusive: true")),
    _edit(
        "weights",
        "another priority weight in slurm.extra",
        _after(_SLURM, "  extra: {PriorityWeightAge: 5000}\n"),
    ),
    _edit(
        "extra-reconfigure",
        "a key of slurm.conf that a reconfigure reads",
        _after(_SLURM, "  extra: {KillWait: 60}\n"),
    ),
    _edit(
        "extra-restart",
        "a key of slurm.conf that needs a restart",
        _after(_SLURM, "  extra: {CommunicationParameters: host_unreach_retry_count=3}\n"),
    ),
    _edit("licences", "more licences", ("{matlab: 4}", "{matlab: 8}")),
    _edit("requeue", "no requeue by default", _after(_SLURM, "  requeue: false\n")),
    _edit(
        "preemption",
        "preemption by QOS",
        _after(_SLURM, "  preemption: {by: qos}\n"),
        _after(
            "  - {name: normal, priority: 100}\n", "  - {name: urgent, priority: 1000, preempts: [normal]}\n"
        ),
    ),
    _edit(
        "reservation",
        "a maintenance window next year",
        _after(
            _SLURM,
            "  reservations: [{name: patch, pools: [small], start: 2027-12-01T08:00Z, duration: 4h, maint: true}]\n",
        ),
    ),
    _edit("private-tmp", "the /tmp of jobs is shared", _after(_SLURM, "  private_tmp: false\n")),
    _edit(
        "qos-added",
        "a QOS is added",
        _after("  - {name: normal, priority: 100}\n", "  - {name: urgent, priority: 1000}\n"),
    ),
    _edit("account-share", "an account gets another share", ("share: 3", "share: 5")),
    _edit(
        "account-limit",
        "an account gets a limit below what runs",
        ("users: [vision, speech]}", "users: [vision, speech], limits: {gpus: 0}}"),
    ),
    _edit(
        "user-added",
        "a user is added",
        _after(_SPEECH, "  - {name: recsys, uid: 5003}\n"),
        ("[vision, speech]", "[vision, speech, recsys]"),
    ),
    _edit("user-removed", "another user is removed", (_SPEECH, ""), ("[vision, speech]", "[vision]")),
    _edit("key-removed", "the key of the user with the jobs is removed", (f', keys: ["{KEY}"]', "")),
    _edit("uid", "the other user gets another uid", ("uid: 5002", "uid: 5102")),
    _edit("ssh-from", "ssh only from another range", ("198.51.100.0/24", "203.0.113.0/24")),
    _edit("ssm", "no Session Manager", (", ssm: true", "")),
    _edit(
        "health",
        "health checks more often, no checks around jobs",
        ("{prolog: true, every: 12h}", "{prolog: false, every: 1h}"),
    ),
    _edit("budget", "a budget that stops launches", ("accept:\n", "budget: {monthly: 1000 USD}\naccept:\n")),
    _edit("idle", "a shorter idle time", (SMALL, SMALL.replace("30m", "20m"))),
    _edit(
        "boot-timeout",
        "a longer boot timeout",
        (SMALL, SMALL.replace("idle: 30m", "idle: 30m, boot_timeout: 30m")),
    ),
    _edit(
        "sharing",
        "four jobs share a GPU",
        (SMALL, SMALL.replace("idle: 30m", "idle: 30m, sharing: {shards: 4}")),
    ),
    _edit("tags", "another tag", ("{team: research}", "{team: research, project: llm}")),
    _edit(
        "jobs-role",
        "jobs may read more of S3",
        ('"s3://example-data/sets"', '"s3://example-data/sets", "s3://example-data/more"'),
    ),
    _edit(
        "mount-added",
        "a mount is added",
        _after(_HOME, "  - {mount: /apps, nfs: {from: head, size: 10GiB}}\n"),
    ),
    _edit("zone-added", "a second zone", ("zones: [us-east-1a]", "zones: [us-east-1a, us-east-1b]")),
    _edit("login-count", "a second login machine", ("count: 1", "count: 2")),
    _edit(
        "login-machine",
        "another machine type of login",
        ("{machine: m7i.large, count", "{machine: m7i.xlarge, count"),
    ),
    _edit("head-machine", "another machine type of the head", (_BASE_HEAD, "head: {machine: m7i.2xlarge}")),
    _edit(
        "head-replaced",
        "another address of the head, without head.state",
        (_BASE_HEAD, "head: {machine: m7i.xlarge, address: 10.63.0.20}"),
    ),
    _edit("state-added", "head.state is added", (_BASE_HEAD, "head: {machine: m7i.xlarge, state: 10GiB}")),
    _edit("image", "another image", ("  tags: {team", f"  image: {{ami: {IMAGE}}}\n  tags: {{team")),
)

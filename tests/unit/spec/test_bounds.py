"""Each limit of the spec: the last accepted value, and the first refused value."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.account_rows import SITE
from support.builders import KUBE, LAB, SPEC, WORKLOADS, a_kube_spec, changed
from support.capacity_rows import PRICED
from support.reservation_rows import RESERVED

from gpucluster import catalog, spec
from gpucluster.spec import inspect_text, inspect_workloads_text

Change = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """`at` puts a value into the text; `last` is accepted without this problem, `first` is refused with it."""

    name: str
    problem: str
    last: object
    first: object
    at: Callable[[object], tuple[Change, ...]]
    text: str = SPEC


def _nodes(text: str) -> tuple[Change, ...]:
    return (("{min: 0, max: 16}", text),)


def _budget(text: str) -> tuple[Change, ...]:
    return (("accept:", f"budget: {{monthly: 500000 USD, {text}}}\naccept:"),)


def _named(word: str, count: object) -> str:
    return ", ".join(word.format(number) for number in range(int(str(count))))


def _jobs(*places: str) -> tuple[Change, ...]:
    return (("slurm:\n", f"  jobs: {{read: [{', '.join(places)}]}}\nslurm:\n"),)


def _letters(count: object) -> tuple[Change, ...]:
    """Return sixteen S3 locations with `count` characters in total."""
    sizes = [100] * 15 + [int(str(count)) - 1500]
    return _jobs(*(f"s3://data-{n:02}/{'a' * (size - 13)}" for n, size in enumerate(sizes)))


def _state(size: object) -> tuple[Change, ...]:
    return (("  machine: m7i.2xlarge", f"  machine: m7i.2xlarge\n  state: {size}"),)


def _storage(*items: str) -> Change:
    return ("pools:\n", "storage:\n" + "".join(f"  - {item}\n" for item in items) + "pools:\n")


def _in_zone(zone: str) -> tuple[Change, ...]:
    """Both sources of the pool are in one zone."""
    return ("p5e.48xlarge]}", f"p5e.48xlarge], zones: [{zone}]}}"), ("max: 4}", f"max: 4, zones: [{zone}]}}")


def _hosts(count: int) -> tuple[Change, ...]:
    """Return a second pool with this number of hosts, beside the head and the pool of four."""
    full, rest = divmod(count, 250)
    places = [f"10.1.{n}.[1-250]" for n in range(full)] + [f"10.2.0.[1-{rest}]"] * (rest > 0)
    return (
        ('  topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}\n', ""),
        ("partitions:\n", f'  - {{name: more, machine: hgx-h100, hosts: "n[1-{count}]", addresses: "{",".join(places)}"}}\npartitions:\n'),
        ("pools: [h100]", "pools: [h100, more]"),
    )  # fmt: skip


EFS = "{mount: /home, efs: {}}"
STATE = "{mount: /state, nfs: {server: 10.42.0.9, export: /state}}"
OWN_STATE = "{mount: /state, efs: {}}"
STANDBY = ("  machine: m7i.2xlarge", "  machine: m7i.2xlarge\n  standby: {machine: m7i.2xlarge, zone: us-east-2b, state: /state}")  # fmt: skip
ROOM_28 = (
    "10.42.0.0/16",
    "10.42.0.0/25",
)  # a zone's eighth is a /28: 16 less AWS's five and the two heads' places
NO_NAT = ("    zones:", "    nat: none\n    zones:")
BOUNDS = (
    Bound(
        name="nodes in a zone's subnet", problem="network-too-small", last=10, first=11,
        at=lambda n: (ROOM_28, *_nodes(f"{{min: 0, max: {n}}}")),
    ),
    Bound(
        name="login machines in the public subnet, beside a NAT gateway", problem="network-too-small", last=10, first=11,
        at=lambda n: (("10.42.0.0/16", "10.42.0.0/22"), ("pools:\n", f"login: {{machine: m7i.large, count: {n}}}\naccess: {{ssh_from: [203.0.113.0/24]}}\nusers: [{{name: ada, uid: 5001}}]\npools:\n")),
    ),
    Bound(name="the largest network", problem="cidr-size", last=16, first=15, at=lambda n: (("10.42.0.0/16", f"10.{42 if n == 16 else 40}.0.0/{n}"),)),
    Bound(name="a network's smallest size", problem="cidr-size", last=25, first=26, at=lambda n: (("10.42.0.0/16", f"10.42.0.0/{n}"), *_nodes("{min: 0, max: 4}"))),
    Bound(
        name="nodes in a zone of a pool whose sources are in two zones", problem="network-too-small", last=10, first=11,
        at=lambda n: (ROOM_28, *_nodes(f"{{min: 0, max: {n}}}"), ("p5e.48xlarge]}", "p5e.48xlarge], zones: [us-east-2a]}"), ("max: 4}", "max: 4, zones: [us-east-2b]}")),
    ),
    Bound(
        name="a spot price below the highest of two list prices", problem="price-no-limit", last=63, first=64, text=PRICED,
        at=lambda n: (("from: spot, machines: [p5en.48xlarge]", f"from: spot, machines: [p5.48xlarge, p5en.48xlarge], max_price: {n} USD/h"),),
    ),
    Bound(
        name="links of a Lustre", problem="too-many-links", last=8, first=9,
        at=lambda n: (("pools:\n", f"storage: [{{mount: /d, fsx_lustre: {{zone: us-east-2a, size: 9600GiB, link: [{_named('{{path: /{}, s3: s3://abc}}', n)}]}}}}]\npools:\n"),),
    ),
    Bound(name="the least memory of a host", problem="out-of-range", last="512MiB", first="511MiB", text=LAB, at=lambda n: (("memory: 2000GiB", f"memory: {n}"),)),
    Bound(name="the shortest interval of health checks", problem="out-of-range", last="60s", first="59s", at=lambda n: (("partitions:\n", f"health: {{every: {n}}}\npartitions:\n"),)),
    Bound(name="the longest interval of health checks", problem="out-of-range", last="65535s", first="65536s", at=lambda n: (("partitions:\n", f"health: {{every: {n}}}\npartitions:\n"),)),
    Bound(name="the fewest drained nodes", problem="out-of-range", last=1, first=0, at=lambda n: (("partitions:\n", f"health: {{at_most: {n}}}\npartitions:\n"),)),
    Bound(name="the largest share of drained nodes", problem="out-of-range", last="100%", first="101%", at=lambda n: (("partitions:\n", f"health: {{at_most: {n}}}\npartitions:\n"),)),
    Bound(name="the fewest replacements", problem="out-of-range", last=1, first=0, at=lambda n: (("partitions:\n", f"health: {{replace_per_hour: {n}}}\npartitions:\n"),)),
    Bound(name="default time", problem="default-time", last="1d", first="25h", at=lambda n: (("max_time: 1d", f"max_time: 1d, default_time: {n}"),)),
    Bound(name="the CPUs of a partition on a node", problem="max-cpus-per-node", last=2, first=1, at=lambda n: (("nodes: {min: 0, max: 16}", "nodes: 2"), ("max_time: 1d", f"max_time: 1d, max_cpus_per_node: {n}"))),
    Bound(name="the CPUs of a partition below a node's", problem="no-cpu-limit", last=191, first=192, at=lambda n: (*_nodes("{min: 16, max: 16}"), ("max_time: 1d", f"max_time: 1d, max_cpus_per_node: {n}"),)),
    Bound(name="min beside max", problem="min-above-max", last=16, first=17, at=lambda n: _nodes(f"{{min: {n}, max: 16}}")),
    Bound(name="max of a source", problem="max-above-pool", last=16, first=17, at=lambda n: (("max: 4}", f"max: {n}}}"),)),
    Bound(
        name="spares beside the always-on nodes", problem="spares-above-max", last=12, first=13,
        at=lambda n: (*_nodes("{min: 4, max: 16}"), ("idle: 5m", f"idle: 5m\n    spares: {n}")),
    ),
    Bound(
        name="always-on nodes and the sum of the sources", problem="sources-below-min", last=8, first=9,
        at=lambda n: (*_nodes(f"{{min: {n}, max: 16}}"), ("p5e.48xlarge]}", "p5e.48xlarge], max: 4}")),
    ),
    Bound(
        name="a spot price below the list price", problem="price-no-limit", last="63.295", first="63.296", text=PRICED,
        at=lambda n: (("from: spot,", f"from: spot, max_price: {n} USD/h,"),),
    ),
    Bound(name="the warning of a budget", problem="warn-after-stop", last=90, first=91, text=PRICED, at=lambda n: _budget(f"warn_at: {n}%, stop_scaling_at: 90%")),
    Bound(name="subscribers of a budget", problem="too-many-addresses", last=10, first=11, text=PRICED, at=lambda n: _budget(f"notify: [{_named('a{}@example.org', n)}]")),
    Bound(name="tags", problem="too-many-tags", last=40, first=41, at=lambda n: (("slurm:\n", f"  tags: {{{_named('t{}: x', n)}}}\nslurm:\n"),)),
    Bound(name="the characters of a name", problem="bad-name", last=24, first=25, at=lambda n: (("name: burst", f"name: {'a' * int(str(n))}"),)),
    Bound(name="who may log in", problem="open-to-all", last=9, first=8, at=lambda n: (("pools:\n", f"login: {{machine: m7i.large}}\naccess: {{ssh_from: [9.0.0.0/{n}]}}\nusers: [{{name: ada, uid: 5001}}]\npools:\n"),)),
    Bound(name="GPUs that NVLink joins", problem="nvlink-groups", last=2, first=1, text=LAB, at=lambda n: (("count: 8", f"count: 8, nvlink: {n}"),)),
    Bound(name="all GPUs that NVLink joins", problem="nvlink-groups", last=8, first=16, text=LAB, at=lambda n: (("count: 8", f"count: 8, nvlink: {n}"),)),
    Bound(name="GPUs beside CPUs of a host", problem="gpus-above-cpus", last=8, first=9, text=LAB, at=lambda n: (("sockets: 2, cores_per_socket: 56, threads_per_core: 2", "sockets: 1, cores_per_socket: 8, threads_per_core: 1"), ("count: 8", f"count: {n}"))),
    Bound(name="addresses of hosts", problem="addresses-differ", last="14", first="15", text=LAB, at=lambda n: (("[11-14]", f"[11-{n}]"),)),
    Bound(name="the cooldown of the breaker", problem="out-of-range", last="60s", first="59s", at=lambda n: (("idle: 5m", f"idle: 5m\n    breaker: {{boots: 3, cooldown: {n}}}"),)),
    Bound(name="a user's number", problem="out-of-range", last=59999, first=60000, text=LAB, at=lambda n: (("uid: 5001", f"uid: {n}"),)),
    Bound(name="boots before the breaker", problem="out-of-range", last=100, first=101, at=lambda n: (("idle: 5m", f"idle: 5m\n    breaker: {{boots: {n}, cooldown: 10m}}"),)),
    Bound(name="a quota of slices", problem="quota-above-pools", last=336, first=337, text=KUBE, at=lambda n: (("mig-1g.10gb: 28", f"mig-1g.10gb: {n}"),)),
    Bound(name="a quota of GPUs", problem="quota-above-pools", last=32, first=33, text=KUBE, at=lambda n: (("nvidia.com/gpu: 32", f"nvidia.com/gpu: {n}"),)),
    Bound(name="places of jobs in S3", problem="too-many-places", last=20, first=21, at=lambda n: _jobs(*(f"s3://data-{i}" for i in range(int(str(n)))))),
    Bound(name="the characters of the places of jobs in S3", problem="too-many-places", last=1600, first=1601, at=_letters),
    Bound(name="the smallest volume of the head's state", problem="out-of-range", last="8GiB", first="7GiB", at=_state),
    Bound(name="the largest volume of the head's state", problem="out-of-range", last="16384GiB", first="16385GiB", at=_state),
    Bound(name="GPUs beside CPUs with two threads", problem="gpus-above-cpus", last=8, first=9, text=LAB, at=lambda n: (("sockets: 2, cores_per_socket: 56", "sockets: 2, cores_per_socket: 2"), ("count: 8", f"count: {n}"))),
    Bound(name="a multiple of the size of a Lustre", problem="lustre-size", last="4800GiB", first="6000GiB", at=lambda n: (_storage(f"{{mount: /d, fsx_lustre: {{zone: us-east-2a, size: {n}}}}}"),)),
    Bound(
        name="nodes in the zone of the standby, beside EFS", problem="network-too-small", last=9, first=10,
        at=lambda n: (ROOM_28, *_nodes(f"{{min: 0, max: {n}}}"), *_in_zone("us-east-2b"), STANDBY, _storage(EFS, STATE)),
    ),
    Bound(
        name="nodes in a zone without a head, beside EFS", problem="network-too-small", last=10, first=11,
        at=lambda n: (ROOM_28, *_nodes(f"{{min: 0, max: {n}}}"), *_in_zone("us-east-2b"), _storage(EFS)),
    ),
    Bound(
        name="nodes beside two endpoints", problem="network-too-small", last=8, first=9,
        at=lambda n: (ROOM_28, *_nodes(f"{{min: 0, max: {n}}}"), ("    zones:", "    endpoints: [sqs, ec2]\n    zones:")),
    ),
    Bound(
        name="nodes beside the endpoints of a network without NAT", problem="network-too-small", last=7, first=8,
        at=lambda n: (ROOM_28, NO_NAT, *_nodes(f"{{min: 0, max: {n}}}")),
    ),
    Bound(
        name="nodes beside these endpoints and those of Session Manager", problem="network-too-small", last=4, first=5,
        at=lambda n: (ROOM_28, NO_NAT, *_nodes(f"{{min: 0, max: {n}}}"), ("pools:\n", "access: {ssm: true}\npools:\n")),
    ),
    Bound(
        name="nodes beside these endpoints and those of jobs", problem="network-too-small", last=6, first=7,
        at=lambda n: (ROOM_28, NO_NAT, *_nodes(f"{{min: 0, max: {n}}}"), *_jobs("s3://data-1")),
    ),
    Bound(
        name="nodes beside a Lustre of 1026 servers", problem="network-too-small", last=7159, first=7160,
        at=lambda n: (*_nodes(f"{{min: 0, max: {n}}}"), _storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 1231200GiB}}")),
    ),
    Bound(
        name="nodes in another zone than the Lustre", problem="network-too-small", last=11, first=12,
        at=lambda n: (ROOM_28, *_nodes(f"{{min: 0, max: {n}}}"), *_in_zone("us-east-2b"), _storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 4800GiB}}")),
    ),
    Bound(
        name="a budget for the always-on nodes of two sources: 10 + 2 x 63.296 USD/h", problem="budget-below-least", last=99713, first=99712, text=PRICED,
        at=lambda n: (*_nodes("{min: 3, max: 16}"), ("[p5en.48xlarge]}", "[p5en.48xlarge], max: 1, max_price: 10 USD/h}"), ("accept:", f"budget: {{monthly: {n} USD}}\naccept:")),
    ),
    Bound(name="the hosts of all pools, with the head", problem="out-of-range", last=65531, first=65532, text=LAB, at=lambda n: _hosts(int(str(n)))),
    Bound(
        name="GPUs that read 2050 MB/s of a Lustre", problem="lustre-slow", last=41, first=42,
        at=lambda n: (
            *_nodes(f"{{min: 0, max: {n}}}"), ("[p5en.48xlarge, p5e.48xlarge]", "[g5.xlarge]"), ("[p5en.48xlarge], max", "[g5.xlarge], max"),
            _storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 16800GiB}}"),
        ),
    ),
    Bound(
        name="nodes beside the control plane and the nodes of add-ons of EKS", problem="network-too-small", last=3, first=4, text=KUBE,
        at=lambda n: (("10.60.0.0/16", "10.60.0.0/22"), ("2400GiB", "16800GiB"), ("nodes: 4", f"nodes: {n}"), ("{min: 1, max: 6}", "1"), ("gpu: 32", f"gpu: {8 * int(str(n))}"), ("10gb: 28", "10gb: 8")),
    ),
    Bound(
        name="nodes of EKS in a zone, each with 16 addresses for pods", problem="network-too-small", last=475, first=476, text=KUBE,
        at=lambda n: (("{min: 1, max: 6}", f"{{min: 1, max: {n}}}"),),
    ),
    Bound(
        name="nodes of the add-ons in a zone of EKS", problem="network-too-small", last=471, first=472, text=KUBE,
        at=lambda n: (("control_plane: eks", f"control_plane: eks\n  system: {{nodes: {n}}}"),),
    ),
    Bound(name="slices of one GPU", problem="too-many-slices", last=7, first=8, text=KUBE, at=lambda n: (("1g.10gb: 7", f"1g.10gb: {n}"),)),
)  # fmt: skip


_ONE_REPLICA = (("{min: 2, max: 8}", "{min: 1, max: 1}"), ("    scale_on: {queue_depth: 10}\n", ""))
# A second pool of GPUs, a team that borrows them, and a team with a twelfth of the slices.
_TEAMS = (
    ("    - {name: research", "    - {name: small, quota: {nvidia.com/mig-1g.10gb: 28}}\n    - {name: lab, quota: {nvidia.com/gpu: 0}, may_borrow: true}\n    - {name: research"),
    ("  - name: serve\n", "  - name: more\n    nodes: 3\n    capacity: [{from: on-demand, machines: [p4de.24xlarge]}]\n  - name: serve\n"),
)  # fmt: skip
WORKLOAD_BOUNDS = (
    Bound(name="nodes of a gang in the largest pool of a team that borrows", problem="gang-above-domain", last=4, first=5, text=WORKLOADS, at=lambda n: (("nodes: 4", f"nodes: {n}"), ("team: research", "team: lab"))),
    Bound(name="pods of half a node in the largest pool of a team that borrows", problem="gang-above-domain", last=8, first=9, text=WORKLOADS, at=lambda n: (("nodes: 4", f"nodes: {n}"), ("gpus_per_node: 8", "gpus_per_node: 4"), ("team: research", "team: lab"))),
    Bound(name="the memory of all replicas", problem="above-quota", last="67092Mi", first="67093Mi", text=WORKLOADS, at=lambda n: (("mig-1g.10gb: 1", f"mig-1g.10gb: 1, memory: {n}"), ("team: serving", "team: small"))),
    Bound(name="the CPUs of one replica", problem="no-room", last="92160m", first="92161m", text=WORKLOADS, at=lambda n: (("mig-1g.10gb: 1", f"mig-1g.10gb: 1, cpu: {n}"), *_ONE_REPLICA)),
    Bound(name="nodes of a gang", problem="above-quota", last=4, first=5, text=WORKLOADS, at=lambda n: (("nodes: 4", f"nodes: {n}"),)),
    Bound(name="replicas", problem="min-above-max", last=8, first=9, text=WORKLOADS, at=lambda n: (("min: 2", f"min: {n}"),)),
    Bound(name="GPUs of a node", problem="gpus-per-node", last=8, first=9, text=WORKLOADS, at=lambda n: (("gpus_per_node: 8", f"gpus_per_node: {n}"), ("nodes: 4", "nodes: 1"))),
)  # fmt: skip


def _ids(text: str) -> list[tuple[str, str]]:
    return [(p.id, str(p).splitlines()[0]) for p in inspect_text(text, "spec.yaml", catalog.load()).problems]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_last_value_is_accepted_and_the_next_is_refused(bound: Bound) -> None:
    accepted = _ids(changed(bound.text, *bound.at(bound.last)))
    refused = _ids(changed(bound.text, *bound.at(bound.first)))
    _compare(bound, accepted, refused)


@pytest.mark.parametrize("bound", WORKLOAD_BOUNDS, ids=lambda bound: bound.name)
def test_last_workload_is_accepted_and_the_next_is_refused(bound: Bound) -> None:
    accepted = _workload_ids(changed(bound.text, *bound.at(bound.last)))
    refused = _workload_ids(changed(bound.text, *bound.at(bound.first)))
    _compare(bound, accepted, refused)


def _workload_ids(text: str) -> list[tuple[str, str]]:
    report = inspect_workloads_text(text, "workloads.yaml", a_kube_spec(*_TEAMS), catalog.load())
    return [(p.id, str(p).splitlines()[0]) for p in report.problems]


def _compare(bound: Bound, accepted: list[tuple[str, str]], refused: list[tuple[str, str]]) -> None:
    assert bound.problem not in {name for name, _ in accepted}, accepted
    assert bound.problem in {name for name, _ in refused}, refused
    assert [name for name, _ in refused if name != bound.problem] == [name for name, _ in accepted], (
        accepted,
        refused,
    )


FITS: tuple[tuple[str, str, str, tuple[Change, ...]], ...] = (
    ("a standby whose state is on an NFS server of the site", "standby-state", SPEC, (STANDBY, _storage(EFS, STATE), ("accept: [", "accept: [{id: standby-state-access, because: the exports admit the heads alone, until: 2099-12-31}, "))),
    ("a reservation before the first time of one that repeats", "reservation-overlap", RESERVED, (("2026-12-03T11:00Z", "2026-11-24T09:00Z"),)),
    (
        "two reservations of one node that do not repeat, one after the other", "reservation-overlap", RESERVED,
        (("duration: 4h, repeat: weekly", "duration: 4h"), ("duration: 2h, repeat: daily", "duration: 2h"), ("09:00Z", "12:00Z")),
    ),
    (
        "two tiers of partitions decide who preempts", "nothing-preempts", SITE,
        (("by: qos", "by: partition"), (", preempts: [normal]", "")),
    ),
    (
        "a reservation of two pools, the second of which does not name the only zone", "reservation-differs", PRICED,
        (
            ("zones: [us-east-1a, us-east-1b]", "zones: [us-east-1a]"),
            ("{from: on-demand, machines: [p5en.48xlarge], max: 4}", "{from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]}"),
            ("partitions:\n", "  - {name: b, nodes: 2, capacity: [{from: reservation, id: cr-0123456789abcdef0, machines: [p5en.48xlarge]}]}\npartitions:\n"),
            ("pools: [h200]", "pools: [h200, b]"),
        ),
    ),
    (
        "a reservation of two pools, the first of which does not name the only zone", "reservation-differs", PRICED,
        (
            ("zones: [us-east-1a, us-east-1b]", "zones: [us-east-1a]"),
            ("{from: on-demand, machines: [p5en.48xlarge], max: 4}", "{from: reservation, id: cr-0123456789abcdef0, machines: [p5en.48xlarge]}"),
            ("partitions:\n", "  - {name: b, nodes: 2, capacity: [{from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]}]}\npartitions:\n"),
            ("pools: [h200]", "pools: [h200, b]"),
        ),
    ),
    (
        "two reservations of two pools in two zones", "reservation-differs", PRICED,
        (
            ("{from: on-demand, machines: [p5en.48xlarge], max: 4}", "{from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]}"),
            ("partitions:\n", "  - {name: b, nodes: 2, capacity: [{from: reservation, id: cr-0fedcba9876543210, zones: [us-east-1b], machines: [p5.48xlarge]}]}\npartitions:\n"),
            ("pools: [h200]", "pools: [h200, b]"),
        ),
    ),
    (
        "a budget of a pool that is paid ahead and a pool that is not", "budget-without-prices", PRICED,
        (
            ("partitions:\n", "  - {name: b, nodes: 2, capacity: [{from: capacity-block, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]}]}\npartitions:\n"),
            ("pools: [h200]", "pools: [h200, b]"),
            ("accept:", "budget: {monthly: 500000 USD}\naccept:"),
        ),
    ),
    ("a placement group for a pool of two nodes", "placement-alone", SPEC, (("{min: 0, max: 16}", "{min: 0, max: 2}"), ("max: 4}", "max: 2}"), ("    idle: 5m", "    idle: 5m\n    placement: cluster"))),
    ("a standby in a network of one zone", "standby-zone", SPEC, (("us-east-2a, us-east-2b", "us-east-2a"), (STANDBY[0], STANDBY[1].replace("us-east-2b", "us-east-2a")), _storage(EFS, OWN_STATE))),
    ("a standby whose state is on an EFS of the cluster, beside an NFS of the site", "standby-state-access", SPEC, (STANDBY, _storage(EFS, OWN_STATE, "{mount: /d, nfs: {server: 192.0.2.5, export: /d}}"))),
    ("a mount whose name begins like that of the own disks", "mounted-within", SPEC, (_storage("{mount: /scratch, nvme: {}}", "{mount: /scratch2, efs: {}}"),)),
    (
        "a login machine in the first zone, which has a public subnet", "login-not-public", SPEC,
        (
            ("    cidr: 10.42.0.0/16\n    zones: [us-east-2a, us-east-2b]\n", "    vpc: vpc-0123456789abcdef0\n    subnets: {us-east-2a: subnet-0123456789abcdef0, us-east-2b: subnet-0fedcba9876543210}\n    public: {us-east-2a: subnet-0aaaaaaaaaaaaaaaa}\n"),
            ("  machine: m7i.2xlarge", "  machine: m7i.2xlarge\n  address: 10.42.0.10"),
            ("pools:\n", "login: {machine: m7i.xlarge}\naccess: {ssh_from: [198.51.100.0/24]}\nusers: [{name: ada, uid: 5001}]\npools:\n"),
        ),
    ),
    ("one profile, which the GPU lacks", "too-many-slices", KUBE, (("{1g.10gb: 7}", "{1g.18gb: 1}"), ("mig-1g.10gb: 28", "mig-1g.18gb: 4"))),
    ("a team with a quota of one resource and none of another", "team-without-quota", KUBE, (("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 32, nvidia.com/mig-1g.10gb: 0}"),)),
    ("a tag whose key begins like that of Karpenter", "reserved-tag", KUBE, (("region: us-west-2\n", "region: us-west-2\n  tags: {karpenter.sh/nodepools: x, kubernetes.io/role: y}\n"),)),
    ("tags of Karpenter in a cluster without Kubernetes", "reserved-tag", SPEC, (("slurm:\n", "  tags: {karpenter.sh/nodepool: x}\nslurm:\n"),)),
    ("a role in a path, and a user", "bad-arn", KUBE, (("control_plane: eks", "control_plane: eks\n  admins: ['arn:aws:iam::123456789012:role/aws-reserved/sso.amazonaws.com/Admin', 'arn:aws:iam::123456789012:user/ada']"),)),
    ("a KMS key in the cluster's region", "key-region", SPEC, (("slurm:\n", "  kms_key: arn:aws:kms:us-east-2:123456789012:key/12345678-1234-1234-1234-123456789012\nslurm:\n"),)),
    ("two users whose names are wrong", "duplicate-name", LAB, (("{name: vision, uid: 5001}", "{name: A b, uid: 5001}\n  - {name: C d, uid: 5002}"),)),
    ("two users whose uids are wrong", "duplicate-uid", LAB, (("{name: vision, uid: 5001}", "{name: ada, uid: x}\n  - {name: eve, uid: y}"),)),
)  # fmt: skip


@pytest.mark.parametrize(("problem", "text", "changes"), [row[1:] for row in FITS], ids=[row[0] for row in FITS])  # fmt: skip
def test_spec_beside_a_refused_one_is_accepted(problem: str, text: str, changes: tuple[Change, ...]) -> None:
    said = _ids(changed(text, *changes))
    assert problem not in {name for name, _ in said}, said
    assert {name for name, _ in said} <= {"accept-unused", "bad-user-name", "bad-type", "no-price", "unknown-profile", "checkpoints-on-home", "head-state", "no-account"}, said  # fmt: skip


def test_each_row_names_a_problem_that_a_rule_reports() -> None:
    """Two rows named problems that no rule had after a rename, so their first assertion could not fail."""
    folder = Path(spec.__file__).parent
    known = {
        found
        for path in folder.rglob("*.py")
        for found in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', path.read_text())
    }
    named = {row[1] for row in FITS} | {bound.problem for bound in (*BOUNDS, *WORKLOAD_BOUNDS)}
    assert named <= known, named - known

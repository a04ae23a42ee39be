"""Rules: a value and what is wanted to a verdict, in rows."""

from dataclasses import replace

import pytest

from gpucluster.checks import cloud, files, hardware, jobs, lives, machine, pairs, partitions, slurm
from gpucluster.checks.cloud import Holdings, Instance, Owned
from gpucluster.checks.hardware import Board
from gpucluster.checks.jobs import Devices, Ended, Gang, Gres, Leaves, Rank, Small
from gpucluster.checks.lives import Life, Lives, RoundTrip
from gpucluster.checks.machine import Disk, Disks, Mounted, Mounts, MountWant, Unit, Units
from gpucluster.checks.model import Verdict, short
from gpucluster.checks.partitions import Partition, Partitions, PartitionWant
from gpucluster.checks.slurm import Hardware, HardwareLines, Node, Nodes
from gpucluster.checks.table import CHECKS

PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN
SHAPE = (192, 2, 48, 2, 1992294, "gpu:h200:8")


def node(name: str, *states: str, reason: str = "", shape: tuple = SHAPE) -> Node:
    return Node(
        name=name,
        states=frozenset(states),
        reason=reason,
        address=name,
        partitions=frozenset({"gpu"}),
        hardware=shape,
    )


WANTED = Nodes(elastic=("e1", "e2"), static=("s1",))
UP = (node("e1", "IDLE", "CLOUD"), node("e2", "IDLE", "CLOUD", "POWERED_DOWN"), node("s1", "MIXED"))


@pytest.mark.parametrize(
    ("row", "nodes", "verdict", "found"),
    [
        ("elastic nodes may be off", UP, PASS, "3 nodes, 2 up, 1 powered down"),
        ("a node is missing", UP[:2], FAIL, "s1 is missing"),
        ("a node that nobody planned", (*UP, node("x", "IDLE")), FAIL, "x is not in the plan"),
        ("a static node is off", (*UP[:2], node("s1", "IDLE", "POWERED_DOWN")), FAIL, "s1 IDLE+POWERED_DOWN"),
        (
            "drained by an operator",
            (*UP[:2], node("s1", "IDLE", "DRAIN", reason="fan")),
            FAIL,
            "s1 DRAIN+IDLE (fan)",
        ),
        ("down", (node("e1", "DOWN", reason="Not responding"), *UP[1:]), FAIL, "e1 DOWN (Not responding)"),
        (
            "blocked by the daemon, because the cloud refuses",
            (
                UP[0],
                node(
                    "e2", "IDLE", "DRAIN", "POWERED_DOWN", reason="gpucluster: InsufficientInstanceCapacity"
                ),
                UP[2],
            ),
            WARN,
            "e2 is blocked",
        ),
        (
            "a node that boots for somebody's job does not respond yet",
            (node("e1", "ALLOCATED", "CLOUD", "NOT_RESPONDING", "POWERING_UP"), *UP[1:]),
            PASS,
            "3 nodes",
        ),
        (
            "off, with what is left of a refusal that is over",
            (node("e1", "IDLE", "NOT_RESPONDING", "POWERED_DOWN", reason="gpucluster: no h200"), *UP[1:]),
            PASS,
            "3 nodes",
        ),
        ("up and silent", (node("e1", "IDLE", "NOT_RESPONDING"), *UP[1:]), FAIL, "e1 IDLE+NOT_RESPONDING"),
        (
            "the daemon's words on a node that is up are no block",
            (node("e1", "MIXED", "DRAIN", reason="gpucluster: x"), *UP[1:]),
            FAIL,
            "e1 DRAIN+MIXED (gpucluster: x)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_nodes(row, nodes, verdict, found):
    judged = slurm.judge_nodes(nodes, WANTED)
    assert judged.verdict is verdict, row
    assert found in judged.found


def test_hardware():
    line = Hardware(
        nodes=("e1", "e2"), cpus=192, sockets=2, cores=48, threads=2, memory_mib=1992294, gres="gpu:h200:8"
    )
    want = HardwareLines(lines=(line,))
    assert slurm.judge_hardware(UP[:2], want).verdict is PASS
    less = slurm.judge_hardware((UP[0], node("e2", "IDLE", shape=(*SHAPE[:5], "gpu:h200:7"))), want)
    assert (less.verdict, "e2: " in less.found, "gpu:h200:7" in less.found) == (FAIL, True, True)
    assert slurm.judge_hardware((), want).verdict is FAIL


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, ""),
        ({"state": ("DOWN",)}, "gpu is DOWN"),
        ({"state": ("UP", "INACTIVE")}, "gpu is UP+INACTIVE"),
        ({"max_time_min": None}, "MaxTime UNLIMITED, not 60 min"),
        ({"nodes": frozenset({"e1"})}, "gpu has 1 nodes, not 2"),
        ({"default": False}, "gpu is not the default"),
        ({"barriers": ("AllowGroups=root", "MaxNodes=1")}, "gpu has AllowGroups=root, which no plan sets"),
        ({"name": "other"}, "gpu is missing"),
    ],
)
def test_partitions(change, found):
    up = Partition(name="gpu", default=True, state=("UP",), max_time_min=60, nodes=frozenset({"e1", "e2"}))
    want = Partitions(
        partitions=(PartitionWant(name="gpu", default=True, max_time_min=60, nodes=("e1", "e2")),)
    )
    judged = partitions.judge_partitions((replace(up, **change),), want)
    assert (judged.verdict is PASS) == (not found)
    assert found in judged.found


def test_units_name_their_culprits():
    want = Units(units=("munge.service", "slurmd.service"))
    up = Unit(load="loaded", active="active", restarts=0)
    assert machine.judge_units({"munge.service": up, "slurmd.service": up}, want).verdict is PASS
    dead = machine.judge_units({"munge.service": replace(up, active="failed"), "slurmd.service": up}, want)
    assert (dead.verdict, dead.culprits) == (FAIL, ("munge",))
    assert machine.judge_units({"munge.service": up}, want).found == "slurmd is not known"
    restless = machine.judge_units({"munge.service": replace(up, restarts=3), "slurmd.service": up}, want)
    assert restless.verdict is WARN


@pytest.mark.parametrize(
    ("root", "user", "verdict"),
    [
        ("200", "000", PASS),
        ("200", "200", FAIL),
        ("000", "200", FAIL),
        ("200", "401", FAIL),
        ("000", "000", UNKNOWN),
    ],
)
def test_the_guard_is_proven_only_when_root_gets_through(root, user, verdict):
    assert machine.judge_guard((root, user), machine.Guard()).verdict is verdict


def test_mounts():
    want = Mounts(mounts=(MountWant(path="/home", types=("nfs", "nfs4"), source="10.0.0.1:/srv/home"),))
    home = Mounted(type="nfs4", source="10.0.0.1:/srv/home", writable=True)
    assert machine.judge_mounts({"/home": home}, want).verdict is PASS
    for wrong, words in (
        ({}, "/home is not mounted"),
        ({"/home": replace(home, type="ext4")}, "is ext4, not nfs or nfs4"),
        ({"/home": replace(home, source="10.0.0.2:/srv/home")}, "comes from 10.0.0.2:/srv/home"),
        ({"/home": replace(home, writable=False)}, "is read-only"),
    ):
        judged = machine.judge_mounts(wrong, want)
        assert (judged.verdict, words in judged.found) == (FAIL, True)


@pytest.mark.parametrize(
    ("disk", "verdict"),
    [
        (Disk(space=79, inodes=79), PASS),
        (Disk(space=80, inodes=1), WARN),
        (Disk(space=1, inodes=90), FAIL),
        (Disk(space=100, inodes=None), FAIL),
        (None, UNKNOWN),
    ],
)
def test_disks(disk, verdict):
    assert machine.judge_disks({"/": disk} if disk else {}, Disks(paths=("/",))).verdict is verdict


@pytest.mark.parametrize(
    ("off", "blur", "verdict"), [(0, 0.01, PASS), (0.2, 0.01, WARN), (6, 0.01, FAIL), (0, 9, UNKNOWN)]
)
def test_clock(off, blur, verdict):
    assert machine.judge_clock((off, blur), machine.Clock()).verdict is verdict


def test_board():
    want = Board(cpus=2, sockets=1, cores=2, threads=1, memory_mib=1000)
    assert hardware.judge_board(replace(want, memory_mib=1100), want).verdict is PASS
    assert hardware.judge_board(replace(want, memory_mib=999), want).verdict is FAIL
    assert hardware.judge_board(replace(want, threads=2), want).verdict is FAIL


def test_gpus_and_files():
    assert hardware.judge_gpus(frozenset({"nvidia0", "nvidia1"}), hardware.Gpus(count=2)).verdict is PASS
    assert "nvidia1 missing" in hardware.judge_gpus(frozenset({"nvidia0"}), hardware.Gpus(count=2)).found
    assert hardware.judge_gpus(frozenset({"nvidia0", "nvidia1"}), hardware.Gpus(count=1)).verdict is FAIL
    want = files.Files(sha256={"/a": "1", "/b": "2"})
    assert files.judge_files({"/a": "1", "/b": "2"}, want).verdict is PASS
    assert files.judge_files({"/a": "x"}, want).found == "/a is another, /b cannot be read"


def test_a_pool_of_one_node_says_that_it_proves_no_gang():
    judged = jobs.judge_gang((Rank(number=0, of=1, node="n0", address="-"),), Gang(nodes=1))
    assert (judged.verdict, "no second one" in judged.found) == (PASS, True)


def test_munge_and_slurmd():
    alone, both = pairs.Munge(alone=True), pairs.Munge()
    assert pairs.judge_munge(("uid 0",), alone).verdict is PASS
    assert pairs.judge_munge(("uid 0", "uid 1"), both).found == "on the head, of this machine's: uid 1"
    assert pairs.judge_munge(("Expired",), alone).verdict is FAIL
    assert slurm.judge_slurmd("24.11.5", slurm.Slurmd()).verdict is PASS
    assert slurm.judge_slurmd("", slurm.Slurmd()).verdict is FAIL


def test_gang_and_leaves():
    ranks = tuple(Rank(number=n, of=2, node=f"n{n}", address=f"top.leaf.n{n}") for n in range(2))
    assert jobs.judge_gang(ranks, Gang(nodes=2)).verdict is PASS
    assert jobs.judge_gang(ranks[:1], Gang(nodes=2)).verdict is FAIL
    assert jobs.judge_gang((ranks[0], replace(ranks[1], node="n0")), Gang(nodes=2)).verdict is FAIL
    want = Leaves(leaf={"n0": "leaf", "n1": "leaf"}, nodes=2)
    assert jobs.judge_leaves(ranks, want).verdict is PASS
    assert jobs.judge_leaves(ranks[:1], want).verdict is UNKNOWN
    assert jobs.judge_leaves((ranks[0], replace(ranks[1], address="top.other.n1")), want).verdict is FAIL
    assert jobs.judge_leaves((ranks[0], replace(ranks[1], address="-")), want).verdict is FAIL
    apart = Leaves(leaf={"n0": "leaf", "n1": "other"}, nodes=2)
    assert jobs.judge_leaves((ranks[0], replace(ranks[1], address="top.other.n1")), apart).verdict is WARN


def devices(told: int, allowed: int) -> Devices:
    opened = {f"/dev/nvidia{n}": "ENXIO" if n < allowed else "EPERM" for n in range(8)}
    return Devices(told=tuple(map(str, range(told))), opened=opened)


@pytest.mark.parametrize(
    ("found", "isolated", "verdict"),
    [
        ((devices(1, 1), devices(8, 8)), True, PASS),
        ((devices(1, 8), devices(8, 8)), True, FAIL),
        ((devices(1, 8), devices(8, 8)), False, WARN),
        ((devices(0, 0), devices(8, 8)), False, FAIL),
        ((devices(1, 1), devices(7, 7)), True, FAIL),
        ((), True, FAIL),
    ],
)
def test_gres(found, isolated, verdict):
    assert jobs.judge_gres(found, Gres(count=8, isolated=isolated)).verdict is verdict


@pytest.mark.parametrize(
    ("states", "node_", "reason", "verdict"),
    [
        (("COMPLETED",), "e1", "None", PASS),
        (("COMPLETED",), "x", "None", FAIL),
        (("FAILED",), "e1", "NonZeroExitCode", FAIL),
        (("PENDING",), "", "Resources", UNKNOWN),
        (("PENDING",), "", "PartitionDown", FAIL),
    ],
)
def test_small_jobs(states, node_, reason, verdict):
    ended = Ended(id=1, states=states, node=node_, reason=reason, comment="gpucluster: no h200")
    judged = jobs.judge_small(ended, Small(partition="gpu", nodes=("e1",), limit_s=60))
    assert judged.verdict is verdict
    assert states == ("COMPLETED",) or "gpucluster: no h200" in judged.found


WHOLE = (
    (0.0, "POWERED_DOWN"),
    (1.0, "POWERING_UP"),
    (5.0, "RUNNING"),
    (9.0, "IDLE"),
    (19.0, "POWERING_DOWN"),
    (22.0, "POWERED_DOWN"),
)


@pytest.mark.parametrize(
    ("moments", "instance", "verdict", "found"),
    [
        (WHOLE, "", PASS, "up in 4.0 s, off 13.0 s after its job"),
        (WHOLE, "i-1", FAIL, "i-1 lives at its address"),
        (WHOLE[:4], "i-1", FAIL, "POWERED_DOWN > POWERING_UP > RUNNING > IDLE"),
        ((*WHOLE[:3], (9.0, "DOWN")), "", FAIL, "DOWN"),
        (WHOLE[2:], "", UNKNOWN, "was RUNNING before the job"),
        ((*WHOLE[:4], (12.0, "RUNNING")), "i-1", UNKNOWN, "another job"),
        (WHOLE[:3], "i-1", UNKNOWN, "another job"),  # one that shared the node with ours
        (
            (*WHOLE[:4], (12.0, "RUNNING"), (40.0, "IDLE"), (50.0, "POWERING_DOWN"), (52.0, "POWERED_DOWN")),
            "",
            PASS,
            "off 12.0 s after its job",  # and the idle time begins after the last of others' jobs
        ),
        ((*WHOLE[:3], (9.0, "COMPLETING")), "i-1", FAIL, "COMPLETING"),  # an epilog that hangs
        ((*WHOLE[:4], (22.0, "POWERED_DOWN")), "", PASS, "off 13.0 s"),  # looks may miss how it leaves
        ((*WHOLE, (23.0, "POWERING_UP")), "", FAIL, "POWERED_DOWN > POWERING_UP"),
        ((), "", UNKNOWN, "not seen"),
        ((*WHOLE[:2], (99.0, "RUNNING"), *WHOLE[3:]), "", FAIL, "up in 98.0 s"),
    ],
)  # fmt: skip
def test_lives(moments, instance, verdict, found):
    life = Life(node="e1", moments=moments, instance=instance)
    judged = lives.judge_lives(Lives(left_s=8.0, lives=(life,)), RoundTrip(up_s=60, down_s=60))
    assert judged.verdict is verdict
    assert found in judged.found


def test_orphans():
    head = Instance(id="i-0", role="head", request="", subnet="s1")
    ours = Instance(id="i-1", role="node", request="r1", subnet="s1")
    known = Holdings(instances=(head, ours), head="i-0", open=frozenset(), launched=frozenset({"i-1"}))
    want = Owned(cluster="burst", subnets=("s1",))
    assert cloud.judge_holdings(known, want).verdict is PASS
    for instances, words in (
        ((head, replace(ours, id="i-2")), "i-2 (node)"),
        ((head, replace(head, id="i-3")), "i-3 (head)"),
        ((head, replace(ours, role="")), ""),
        ((ours,), "the head i-0 is not in the list"),
        ((head, replace(ours, subnet="s9")), "i-1 (in s9)"),
    ):
        judged = cloud.judge_holdings(replace(known, instances=instances), want)
        assert (judged.verdict is FAIL) == bool(words)
        assert words in judged.found
    login = Instance(id="i-4", role="login", request="", subnet="public", name="burst-login-1")
    standby = Instance(id="i-5", role="standby", request="", subnet="s1", name="burst-standby")
    wide, all_of = replace(want, beside=("burst-login-1", "burst-standby")), (head, login, standby, ours)
    judged = cloud.judge_holdings(replace(known, instances=all_of), wide)
    assert (judged.verdict, judged.found) == (PASS, "the head, 2 beside it and 1 nodes"), (
        "a login machine was owned by nobody, and the remedy was to end it"
    )
    assert cloud.judge_holdings(replace(known, instances=all_of), want).verdict is FAIL
    twice = replace(known, instances=(*all_of, replace(login, id="i-6")))
    assert "i-6 (login)" in cloud.judge_holdings(twice, wide).found
    astray = replace(known, instances=(head, replace(standby, subnet="s9")))
    assert "i-5 (in s9)" in cloud.judge_holdings(astray, wide).found
    launching = replace(known, instances=(head, replace(ours, id="i-2")), open=frozenset({"r1"}))
    assert cloud.judge_holdings(launching, want).verdict is PASS  # its launch has no outcome yet
    assert cloud.judge_daemon("000", cloud.Daemon(url="http://h")).verdict is FAIL


def test_every_check_says_what_to_type_and_rests_on_checks_that_exist():
    for check in CHECKS.values():
        assert ": " in check.remedy or check.remedy.startswith("aws "), check.id
        for need in check.needs:
            assert need.partition(":")[0].partition("@")[0] in CHECKS
    order = list(CHECKS)
    for check in CHECKS.values():
        for need in check.needs:
            before, _, where = need.partition(":")[0].partition("@")
            assert order.index(before) < order.index(check.id) or (before, where) == (check.id, "head")


def test_the_words_of_others_move_no_cursor():
    assert short("a\x1b[2J\nb\u202e\r\x00c") == "a [2J b c"
    assert len(short("x" * 10_000)) == 200

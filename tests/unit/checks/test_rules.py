"""Rules of checks: rows of a parsed value, the plan's value and the verdict."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.waiting import BOUND_S

from gpucluster.checks import (
    cloud,
    each_path,
    files,
    guard,
    hardware,
    jobs,
    machine,
    mounts,
    munge,
    partitions,
    power_saving,
    remedies,
    running_config,
    slurmctld,
)
from gpucluster.checks.check import CheckStatus, ParseError, QueryOutput
from gpucluster.checks.cloud import Holdings, Instance, Owned, SearchScope
from gpucluster.checks.hardware import Board
from gpucluster.checks.jobs import Devices, Gres, Leaves, MultiNode, PrivateFolders, Rank, Small
from gpucluster.checks.kubernetes.instances import KubernetesInstances, NodeInstances, evaluate_instances
from gpucluster.checks.machine import Disk, Disks, Unit, Units
from gpucluster.checks.mounts import Mounted, Mounts, MountWant
from gpucluster.checks.partitions import Partition, Partitions, PartitionWant
from gpucluster.checks.power_saving import Cycles, NodeCycle, PowerCycle
from gpucluster.checks.slurmctld import HardwareLine, HardwareLines, Nodes, NodeSettings
from gpucluster.plan import guard_rules
from gpucluster.slurm.values import NodeHardware, SlurmJob, SlurmNode
from gpucluster.text import short
from gpucluster.validate.expectation import EVERY_CHECK as CHECKS

PASS, WARN, FAIL, UNKNOWN = CheckStatus.PASS, CheckStatus.WARN, CheckStatus.FAIL, CheckStatus.UNKNOWN
RECORDED = Path(__file__).parents[2] / "recorded/checks"
SHAPE = NodeHardware(cpus=192, sockets=2, cores=48, threads=2, memory_mib=1992294, gres="gpu:h200:8")


def node(name: str, *states: str, reason: str = "", shape: NodeHardware = SHAPE) -> SlurmNode:
    return SlurmNode(
        name=name,
        states=frozenset(states),
        reason=reason,
        reason_by="slurm" if reason else "",
        address=name,
        partitions=("gpu",),
        hardware=shape,
    )


WANTED = Nodes(elastic=("e1", "e2"), always_on=("s1",))
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
    finding = slurmctld.evaluate_nodes(nodes, WANTED)
    assert finding.verdict is verdict, row
    assert found in finding.found


NODE_LINE = NodeSettings(hardware=SHAPE, weight=4, features=("h200",))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, ""),
        ({"hardware": replace(SHAPE, gres="gpu:h200:7")}, "gpu:h200:7"),
        ({"weight": 5}, "Weight=5"),
        ({"features": ()}, "Features=none"),
    ],
)
def test_hardware(change, found):
    want = HardwareLines(lines=(HardwareLine(nodes=("e1", "e2"), settings=NODE_LINE),))
    finding = slurmctld.evaluate_hardware({"e1": NODE_LINE, "e2": replace(NODE_LINE, **change)}, want)
    assert (finding.verdict is PASS) == (not found)
    assert not found or ("e2: " in finding.found and found in finding.found)
    assert slurmctld.evaluate_hardware({}, want).verdict is FAIL


LINE = {
    "default": "YES",
    "maxtime": "0-01:00:00",
    "defcpupergpu": "24",
    "state": "UP",
    "gracetime": "00:02:00",
}
SHOWN = {
    "default": "YES",
    "maxtime": "01:00:00",
    "jobdefaults": "DefCpuPerGPU=24",
    "state": "UP",
    "gracetime": "120",
    "allowgroups": "ALL",
    "qos": "N/A",
    "newword": "ABC",
}


@pytest.mark.parametrize(
    ("change", "found", "culprits", "remedy"),
    [
        ({}, "", (), ""),
        ({"state": "DOWN"}, "gpu is DOWN", ("gpu",), "scontrol update partition=gpu state=up"),
        ({"state": "INACTIVE"}, "gpu is INACTIVE", ("gpu",), "scontrol update partition=gpu state=up"),
        ({"default": "NO"}, "gpu is not the default", ("gpu:default",), "scontrol update partition=gpu default=yes"),
        ({"maxtime": "UNLIMITED"}, "gpu has maxtime UNLIMITED, not 0-01:00:00", ("gpu:maxtime",), "scontrol reconfigure"),
        ({"allowgroups": "root"}, "gpu has allowgroups root, not all", ("gpu",), "scontrol reconfigure"),
        ({"denyqos": "normal"}, "gpu has denyqos normal, not unset", ("gpu",), "scontrol reconfigure"),
        ({"jobdefaults": "(null)"}, "gpu has jobdefaults (null)", ("gpu:jobdefaults",), "scontrol reconfigure"),
        (
            {"maxtime": "2:0", "state": "DRAIN", "default": "NO"},
            "gpu is DRAIN",
            ("gpu", "gpu:default", "gpu:maxtime"),
            "scontrol reconfigure; scontrol update partition=gpu state=up; scontrol update partition=gpu default=yes",
        ),
    ],
)  # fmt: skip
def test_partition_settings(change, found, culprits, remedy):
    want = Partitions(partitions=(PartitionWant(name="gpu", nodes=("e1", "e2"), values=LINE),))
    up = Partition(name="gpu", nodes=frozenset({"e1", "e2"}), values={**SHOWN, **change})
    finding = partitions.evaluate_partitions((up,), want)
    assert (finding.verdict is PASS) == (not found)
    assert found in finding.found
    assert set(finding.culprits) == set(culprits)
    assert finding.remedy == (f"on {{machine}}: {remedy}" if remedy else "")


def test_partitions_that_are_missing_or_not_planned():
    want = Partitions(partitions=(PartitionWant(name="gpu", nodes=("e1", "e2"), values=LINE),))
    up = Partition(name="gpu", nodes=frozenset({"e1", "e2"}), values=SHOWN)
    few = partitions.evaluate_partitions((replace(up, nodes=frozenset({"e1"})),), want)
    assert (few.culprits, "gpu has 1 nodes, not 2" in few.found) == (("gpu",), True)
    none = partitions.evaluate_partitions((replace(up, name="x;reboot"),), want)
    assert (none.culprits, none.remedy) == (("gpu", "x;reboot:name"), "on {machine}: scontrol reconfigure")


CONFIG = {
    "hash_val": "Match",
    "slurm_version": "24.11.5",
    "debugflags": "Power",
    "slurmctlddebug": "info",
    "prolog": "/a,/b",
    "slurmuser": "slurm(64030)",
    "accountingstoragetres": "cpu,mem,gres/gpu",
    "suspendtime": "INFINITE",
}
SETTINGS = running_config.Settings(values={}, release="24.11")


@pytest.mark.parametrize(
    ("shown", "wanted", "found", "remedy"),
    [
        ({}, {"prolog": "/b,/a", "slurmuser": "slurm", "accountingstoragetres": "gres/gpu", "suspendtime": "-1"}, "", ""),
        ({}, {"slurmctlddebug": "info", "notshown": "1"}, "", ""),
        ({}, {"slurmctlddebug": "5"}, "slurmctlddebug is info, not 5", "scontrol setdebug debug"),
        ({"debugflags": "Gres,Power"}, {"debugflags": ""}, "debugflags is Gres,Power, not unset", "scontrol setdebugflags -gres; scontrol setdebugflags -power"),
        ({"debugflags": "(null)"}, {"debugflags": "Power"}, "debugflags is (null), not Power", "scontrol setdebugflags +power"),
        ({}, {"accountingstoragetres": "gres/gpu,gres/x"}, "accountingstoragetres is", "scontrol reconfigure"),
        ({}, {"prolog": "/a", "slurmctlddebug": "debug"}, "prolog is /a,/b, not /a", "scontrol reconfigure"),
        ({"hash_val": "Different Ours=0x1 Slurmctld=0x2"}, {}, "slurmctld has read another slurm.conf", "scontrol reconfigure"),
    ],
)  # fmt: skip
def test_running_configuration(shown, wanted, found, remedy):
    finding = running_config.evaluate_config({**CONFIG, **shown}, replace(SETTINGS, values=wanted))
    assert (finding.verdict is PASS) == (not found)
    assert found in finding.found
    assert finding.remedy == (f"on {{machine}}: {remedy}" if remedy else "")


def test_file_that_slurmctld_does_not_compare_is_not_held_against_it():
    shown = {**CONFIG, "hash_val": "Ignored"}
    assert running_config.evaluate_config(shown, replace(SETTINGS, hashed=False)).verdict is PASS


def test_failed_units_are_culprits():
    want = Units(units=("munge.service", "slurmd.service"))
    up = Unit(load="loaded", active="active", restarts=0)
    assert machine.evaluate_units({"munge.service": up, "slurmd.service": up}, want).verdict is PASS
    dead = machine.evaluate_units({"munge.service": replace(up, active="failed"), "slurmd.service": up}, want)
    assert (dead.verdict, dead.culprits) == (FAIL, ("munge",))
    assert dead.remedy.startswith("on {machine}: test -s /etc/munge/munge.key && systemctl restart munge; ")
    states = {
        "munge.service": replace(up, active="inactive"),
        "slurmd.service": replace(up, load="masked", active="inactive"),
    }
    assert (
        f"systemctl unmask slurmd; systemctl unmask --runtime slurmd; {remedies.restart('munge', 'slurmd')}; "
        in machine.evaluate_units(states, want).remedy
    )
    assert machine.evaluate_units({"munge.service": up}, want).found == "slurmd is not in the answer"
    restless = machine.evaluate_units({"munge.service": replace(up, restarts=3), "slurmd.service": up}, want)
    assert restless.verdict is WARN


def test_unit_that_does_not_start_at_boot_fails():
    """Regression: a disabled agent was healthy, until the machine booted again."""
    want = Units(units=("munge.service", "gpucluster-agent.service"), at_boot=("gpucluster-agent.service",))
    (answer,) = machine.query_units(want)
    assert "UnitFileState" in answer.argv[2]
    text = "Id=munge.service\nActiveState=active\nUnitFileState=disabled\n\nId=gpucluster-agent.service\nActiveState=active\nUnitFileState={}\n"
    for state, verdict in (
        ("enabled", PASS),
        ("disabled", FAIL),
        ("enabled-runtime", FAIL),
        ("masked", FAIL),
    ):
        found = machine.parse_units((QueryOutput(code=0, stdout=text.format(state)),))
        result = machine.evaluate_units(found, want)
        culprits = ("gpucluster-agent",) if verdict is FAIL else ()
        assert (result.verdict, result.culprits, result.blocks) == (verdict, culprits, verdict is PASS)
    assert result.found == "gpucluster-agent is active, but masked: it does not start at boot"
    assert result.remedy == "on {machine}: systemctl enable gpucluster-agent"


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
def test_metadata_guard_passes_only_if_root_gets_an_answer(root, user, verdict):
    found = guard.parse_guard((*map(http, (root, user)), rules_of("healthy"), TRIED, PORTS))
    assert guard.evaluate_guard(found, guard.Guard(users=guard_rules.HEAD_USERS)).verdict is verdict


TRIED = QueryOutput(code=0, stdout="tried\n")
PORTS = QueryOutput(code=0, stdout="1024\n")


def test_ports_that_any_user_binds_open_the_guard():
    """Rootless containers ask for it. Then a user's socket of SMC comes from a port that the guard takes for the kernel's."""
    got = (http("200"), http("000"), rules_of("healthy"), TRIED, QueryOutput(code=0, stdout="80\n"))
    result = guard.evaluate_guard(guard.parse_guard(got), guard.Guard(users=guard_rules.HEAD_USERS))
    assert result.verdict is FAIL
    assert "an ordinary user binds ports from 80" in result.found
    assert result.remedy.startswith(
        "on {machine}: sysctl net.ipv4.ip_unprivileged_port_start=1024; grep -rs "
    )


def test_ports_that_any_user_binds_beside_other_rules_have_both_remedies():
    """Regression: the remedy restarted the guard alone, after which users still bound the ports."""
    got = (http("200"), http("000"), rules_of("gone"), TRIED, QueryOutput(code=0, stdout="80\n"))
    result = guard.evaluate_guard(guard.parse_guard(got), guard.Guard(users=guard_rules.HEAD_USERS))
    assert CHECKS["imds.guard"].remedy in result.remedy
    assert "sysctl net.ipv4.ip_unprivileged_port_start=1024" in result.remedy


@pytest.mark.parametrize(
    "ports", [QueryOutput(code=1, stdout="", stderr="No such file"), QueryOutput(code=0, stdout="x\n")]
)
def test_first_port_that_cannot_be_read_is_no_pass_and_hides_no_fault(ports: QueryOutput):
    """Regression: what the rules and the metadata service showed was lost."""
    want = guard.Guard(users=guard_rules.HEAD_USERS)

    def result(situation: str):
        got = (http("200"), http("000"), rules_of(situation), TRIED, ports)
        return guard.evaluate_guard(guard.parse_guard(got), want)

    assert result("healthy").verdict is UNKNOWN
    assert "ip_unprivileged_port_start" in result("healthy").found
    assert result("gone").verdict is FAIL


def test_port_that_a_user_reaches_fails_the_guard():
    """Regression: no rule matched the TCP socket inside a socket of SMC, and the rules were those that the agent loads."""
    tried = QueryOutput(code=0, stdout="port 2049 by SMC\nport 988 by SMC\ntried\n")
    found = guard.parse_guard((http("200"), http("000"), rules_of("healthy"), tried, PORTS))
    result = guard.evaluate_guard(found, guard.Guard(users=guard_rules.HEAD_USERS))
    assert result.verdict is FAIL
    assert "an ordinary user reaches port 2049 by SMC, port 988 by SMC" in result.found


@pytest.mark.parametrize(
    "attempt",
    [
        QueryOutput(code=0, stdout="port 988 by SMC\n"),
        QueryOutput(code=126, stdout="", stderr="Permission denied"),
        QueryOutput(code=124, stdout=""),
    ],
)
def test_attempt_that_did_not_end_is_no_pass_and_hides_no_fault(attempt: QueryOutput):
    want = guard.Guard(users=guard_rules.HEAD_USERS)

    def result(user: str, situation: str):
        return guard.evaluate_guard(
            guard.parse_guard((http("200"), http(user), rules_of(situation), attempt, PORTS)), want
        )

    assert result("000", "healthy").verdict is UNKNOWN
    assert result("200", "healthy").verdict is FAIL
    assert result("000", "gone").verdict is FAIL


def http(status: str) -> QueryOutput:
    return QueryOutput(code=0 if status != "000" else 28, stdout=status)


def rules_of(situation: str) -> QueryOutput:
    """What nft printed, recorded in network namespaces of their own."""
    return QueryOutput(code=0, stdout=json.loads((RECORDED / "guard.json").read_text())[situation])


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        ("file servers open", "added: tcp dport 2049 accept"),
        ("containers pass", "missing: ip daddr 169.254.169.254 drop"),
        ("a user passes", "added: meta skuid 5002 accept"),
        ("dormant", "added: flags dormant"),
        ("of a node", "missing: meta skuid { 0, 64030 } accept"),
        ("another order", "the rules of inet gpucluster have another order"),
        ("gone", "nft has no table inet gpucluster"),
    ],
)
def test_rules_of_the_packet_filter_are_those_that_the_agent_loads(situation, words):
    """Regression: with another rule before ours any job was root on NFS, and the check passed."""
    found = guard.parse_guard((http("200"), http("000"), rules_of(situation), TRIED, PORTS))
    result = guard.evaluate_guard(found, guard.Guard(users=guard_rules.HEAD_USERS))
    assert result.verdict is FAIL
    assert words in result.found


def table(found: dict[str, Mounted]) -> mounts.MountTable:
    return mounts.MountTable(mounts=found, exports=frozenset())


def test_mounts():
    want = Mounts(mounts=(MountWant(path="/home", types=("nfs", "nfs4"), source="10.0.0.1:/srv/home"),))
    home = Mounted(type="nfs4", source="10.0.0.1:/srv/home", options=frozenset())
    assert mounts.evaluate_mounts(table({"/home": home}), want).verdict is PASS
    for wrong, words in (
        ({}, "/home is not mounted"),
        ({"/home": replace(home, type="ext4")}, "is ext4, not nfs or nfs4"),
        ({"/home": replace(home, source="10.0.0.2:/srv/home")}, "comes from 10.0.0.2:/srv/home"),
        ({"/home": replace(home, options=frozenset({"ro"}))}, "is read-only"),
    ):
        finding = mounts.evaluate_mounts(table(wrong), want)
        assert (finding.verdict, words in finding.found, finding.culprits) == (FAIL, True, ("/home",))


MOUNTINFO = "29 1 0:30 / /home rw,relatime shared:1 - nfs4 10.0.0.1:/srv/home rw,vers=4.2\n"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("0\t/home\tnfs\n", ""),
        ("137\t/home\tKilled\n", "/home does not answer within 8 s"),
        ("124\t/home\t\n", "/home does not answer within 8 s"),
        ("1\t/home\tstat: cannot read file system information for '/home': Stale file handle\n", "/home does not answer (stat: cannot read file system information for '/home': Stale file handle)"),
        ("1\t/home\tstat: cannot read file system information for '/home': Permission denied\n", ""),
    ],
    ids=["answers", "killed", "cannot be killed", "stale", "root has no ticket"],
)  # fmt: skip
def test_mount_whose_server_is_dead_is_found(answer, found):
    """Regression: a dead server leaves its mount in the table, `rw`, and everything was healthy."""
    want = Mounts(mounts=(MountWant(path="/home", types=("nfs4",), source=""),), asked=("/home",))
    assert [query.argv[-1] for query in mounts.query_mounts(want)] == ["/proc/self/mountinfo", "/home"]
    shown = mounts.parse_mounts(tuple(QueryOutput(code=0, stdout=text) for text in (MOUNTINFO, answer)))
    finding = mounts.evaluate_mounts(shown, want)
    assert finding.found == (found or finding.expected)
    assert finding.culprits == (("/home",) if found else ())
    assert finding.remedy == (
        found and f"on {{machine}}: {remedies.restart_after(['umount --lazy /home'], 'gpucluster-agent')}"
    )


def test_mount_that_was_not_asked_is_no_pass():
    want = Mounts(mounts=(MountWant(path="/home", types=("nfs4",), source=""),), asked=("/home",))
    shown = mounts.parse_mounts(tuple(QueryOutput(code=0, stdout=text) for text in (MOUNTINFO, "")))
    assert mounts.evaluate_mounts(shown, want).verdict is UNKNOWN
    with pytest.raises(ParseError):
        mounts.parse_mounts(tuple(QueryOutput(code=0, stdout=text) for text in (MOUNTINFO, "x\t/home\t\n")))


def test_bound_folder_that_does_not_answer_is_not_unmounted():
    """slurmctld writes there. What it is bound from answers no more, either."""
    bound = MountWant(path="/var/spool/slurmctld", types=(), source="", bound="/srv/state/slurmctld")
    line = MOUNTINFO.replace("/home", bound.path)
    late = f"137\t{bound.path}\tKilled\n"
    shown = mounts.parse_mounts(tuple(QueryOutput(code=0, stdout=text) for text in (line, late)))
    finding = mounts.evaluate_mounts(shown, Mounts(mounts=(bound,), asked=(bound.path,)))
    assert (finding.verdict, finding.remedy) == (FAIL, "")


def test_folder_that_the_head_does_not_export_is_found():
    """Regression: after `exportfs -ua` no new mount of it was possible, and the agent exports only a changed file."""
    want = Mounts(mounts=(), exports=("/srv/home", "/srv/data"))
    assert "etab" in mounts.query_mounts(want)[-1].argv[-1]
    said = "exports:/srv/data\nexports:/srv/home\n"
    shown = mounts.parse_mounts(tuple(QueryOutput(code=0, stdout=text) for text in (MOUNTINFO, said)))
    assert mounts.evaluate_mounts(shown, want).verdict is PASS
    shown = mounts.parse_mounts(tuple(QueryOutput(code=0, stdout=text) for text in (MOUNTINFO, "")))
    finding = mounts.evaluate_mounts(shown, want)
    assert finding.found == "/srv/home is not exported, /srv/data is not exported"
    assert finding.culprits == ("/srv/home", "/srv/data")
    assert finding.remedy == "on {machine}: systemctl restart nfs-server; exportfs -r -a"


def test_path_that_hangs_delays_no_other(tmp_path):
    """One dead file server made the whole answer late."""
    program = tmp_path / "ask"
    program.write_text("#!/bin/sh\nif [ $1 = /hangs ]; then sleep 600; fi\necho some; echo $1 answers\n")
    program.chmod(0o755)
    argv = each_path.query_each(str(program), ("/hangs", "/a b")).argv
    argv = [*argv[:2], argv[2].replace("KILL 8 ", "KILL 1 ").replace("/run/ ", f"{tmp_path}/ "), *argv[3:]]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=BOUND_S)
    hangs, answers = each_path.parse_each(QueryOutput(code=0, stdout=done.stdout))
    assert (hangs.path, hangs.late) == ("/hangs", True)
    assert (answers.path, answers.code, answers.line, answers.late) == ("/a b", 0, "/a b answers", False)
    assert [one.name for one in tmp_path.iterdir()] == ["ask"]


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("  9%    9% 900000", PASS),
        (" 94%    - 900000", PASS),
        (" 95%    9% 900000", WARN),
        ("100%    9% 900000", WARN),
        ("100%    9% 10239", FAIL),
        (" 98%    9% 0", WARN),
        ("  1%   99% 900000", FAIL),
        ("  -     - 0", PASS),
    ],
)
def test_storage_is_full_when_neither_a_percent_nor_gibibytes_are_left(line, verdict):
    """Regression: /home could be full, and `disk` asked only the machine's own disks."""
    want = Disks(paths=("/",), storage=("/home",))
    assert machine.query_disks(want)[1].argv[-2:] == (machine._DF, "/home")
    said = ("Use% IUse% File\n 9% 9% /\n", f"0\t/home\t{line}\n")
    found = machine.parse_disks(tuple(QueryOutput(code=0, stdout=text) for text in said))
    assert machine.evaluate_disks(found, want).verdict is verdict


def test_storage_that_does_not_answer_is_left_to_another_check():
    want = Disks(paths=("/",), storage=("/home",))
    said = ("Use% IUse% File\n 9% 9% /\n", "137\t/home\tKilled\n")
    found = machine.parse_disks(tuple(QueryOutput(code=0, stdout=text) for text in said))
    assert machine.evaluate_disks(found, want).verdict is PASS
    with pytest.raises(ParseError):
        machine.parse_disks(tuple(QueryOutput(code=0, stdout=text) for text in (said[0], "0\t/home\tx\n")))


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
    assert machine.evaluate_disks({"/": disk} if disk else {}, Disks(paths=("/",))).verdict is verdict


@pytest.mark.parametrize(
    ("off", "blur", "verdict"), [(0, 0.01, PASS), (0.2, 0.01, WARN), (6, 0.01, FAIL), (0, 9, UNKNOWN)]
)
def test_clock(off, blur, verdict):
    assert machine.evaluate_clock((off, blur), machine.MachineClock()).verdict is verdict


def test_board():
    want = Board(cpus=2, sockets=1, cores=2, threads=1, memory_mib=1000)
    assert hardware.evaluate_board(replace(want, memory_mib=1100), want).verdict is PASS
    assert hardware.evaluate_board(replace(want, memory_mib=999), want).verdict is FAIL
    assert hardware.evaluate_board(replace(want, threads=2), want).verdict is FAIL


def test_gpus_and_files():
    assert hardware.evaluate_gpus(frozenset({"nvidia0", "nvidia1"}), hardware.Gpus(count=2)).verdict is PASS
    assert "nvidia1 missing" in hardware.evaluate_gpus(frozenset({"nvidia0"}), hardware.Gpus(count=2)).found
    assert hardware.evaluate_gpus(frozenset({"nvidia0", "nvidia1"}), hardware.Gpus(count=1)).verdict is FAIL
    want = files.Files(sha256={"/a": "1", "/b": "2"})
    assert files.evaluate_files({"/a": "1", "/b": "2"}, want).verdict is PASS
    bad = files.evaluate_files({"/a": "x"}, want)
    assert (bad.found, bad.remedy) == (
        "/a is another, /b cannot be read",
        f"on {{machine}}: {remedies.restart('slurmd')}",
    )


def test_pool_of_one_node_is_named_in_the_finding():
    finding = jobs.evaluate_multi_node((Rank(number=0, of=1, node="n0", address="-"),), MultiNode(nodes=1))
    assert (finding.verdict, "only one node" in finding.found) == (PASS, True)


def test_munge_and_slurmd():
    alone, both = munge.Munge(alone=True), munge.Munge()
    assert munge.evaluate_munge(("uid 0",), alone).verdict is PASS
    assert munge.evaluate_munge(("uid 0", "uid 1"), both).found == "this machine's, read on the head: uid 1"
    assert munge.evaluate_munge(("Expired",), alone).verdict is FAIL
    assert slurmctld.evaluate_slurmd("24.11.5", slurmctld.Slurmd(release="24.11")).verdict is PASS
    assert slurmctld.evaluate_slurmd("", slurmctld.Slurmd(release="24.11")).verdict is FAIL


@pytest.mark.parametrize("version", ["23.11.10", "24.1.1", "24.110.1", "26.05.5"])
def test_daemons_of_another_release_than_the_plan_are_found(version):
    """Regression: the version was printed and compared with nothing."""
    for result in (
        slurmctld.evaluate_slurmd(version, slurmctld.Slurmd(release="24.11")),
        running_config.evaluate_config({**CONFIG, "slurm_version": version}, SETTINGS),
    ):
        assert result.verdict is FAIL
        assert f"is {version}, not 24.11" in result.found
        assert "install Slurm 24.11, then playbooks/site.yml again" in result.remedy
        assert "on {machine}: apt-cache policy slurm-client" in result.remedy


LEAST = slurmctld.LeastRelease(version="26.05.4", mends="CVE-2026-65107 and others")


@pytest.mark.parametrize(("version", "verdict"), [("26.05.1", WARN), ("26.05.4", PASS), ("26.05.10", PASS)])
def test_daemons_with_published_faults_are_found(version, verdict):
    """X5: 26.05.1 on a host passed. A warning, because a distribution mends its package under the same number."""
    results = {
        "slurmd": slurmctld.evaluate_slurmd(version, slurmctld.Slurmd(release="26.05", least=LEAST)),
        "slurmctld": running_config.evaluate_config(
            {**CONFIG, "slurm_version": version}, replace(SETTINGS, release="26.05", least=LEAST)
        ),
    }
    for daemon, result in results.items():
        assert result.verdict is verdict
        if verdict is WARN:
            assert result.found == (
                f"{daemon} is 26.05.1, and 26.05.4 mends CVE-2026-65107 and others; a distribution may mend its package under the older number"
            )
            assert (
                "on existing hosts install Slurm 26.05.4 or newer, then playbooks/site.yml" in result.remedy
            )


def test_other_fault_of_the_configuration_is_told_before_an_old_release():
    found = running_config.evaluate_config(
        {**CONFIG, "slurm_version": "26.05.1", "hash_val": "Different"},
        replace(SETTINGS, release="26.05", least=LEAST),
    )
    assert found.verdict is FAIL
    assert found.found.startswith(
        "slurmctld has read another slurm.conf than the file on the head, slurmctld is 26.05.1, and "
    )


def test_multi_node_job_and_leaf_switches():
    ranks = tuple(Rank(number=n, of=2, node=f"n{n}", address=f"top.leaf.n{n}") for n in range(2))
    assert jobs.evaluate_multi_node(ranks, MultiNode(nodes=2)).verdict is PASS
    assert jobs.evaluate_multi_node(ranks[:1], MultiNode(nodes=2)).verdict is FAIL
    assert (
        jobs.evaluate_multi_node((ranks[0], replace(ranks[1], node="n0")), MultiNode(nodes=2)).verdict is FAIL
    )
    want = Leaves(leaf={"n0": "leaf", "n1": "leaf"}, nodes=2)
    assert jobs.evaluate_leaves(ranks, want).verdict is PASS
    assert jobs.evaluate_leaves(ranks[:1], want).verdict is UNKNOWN
    assert jobs.evaluate_leaves((ranks[0], replace(ranks[1], address="top.other.n1")), want).verdict is FAIL
    assert jobs.evaluate_leaves((ranks[0], replace(ranks[1], address="-")), want).verdict is FAIL
    divided = (
        replace(ranks[0], address="top.leaf.leaf-1.n0"),
        replace(ranks[1], address="top.leaf.leaf-2.n1"),
    )
    assert jobs.evaluate_leaves(divided, want).verdict is PASS, "EC2's switches below the plan's leaf"
    apart = Leaves(leaf={"n0": "leaf", "n1": "other"}, nodes=2)
    assert jobs.evaluate_leaves((ranks[0], replace(ranks[1], address="top.other.n1")), apart).verdict is WARN


def devices(visible: int, allowed: int) -> Devices:
    opened = {f"/dev/nvidia{n}": "open" if n < allowed else "EPERM" for n in range(8)}
    return Devices(visible=tuple(map(str, range(visible))), opened=opened)


@pytest.mark.parametrize("word", ["EIO", "ENXIO", "ENODEV"])
def test_gpu_that_does_not_open_is_found_where_it_has_a_driver(word):
    """Regression: a dead GPU counted as one that can be opened. Only a rehearsal's device files have no driver."""
    broken = replace(devices(8, 8), opened={**devices(8, 8).opened, "/dev/nvidia3": word})
    steps = (devices(1, 1), broken)
    result = jobs.evaluate_gres(steps, Gres(count=8, isolated=True, stand_ins=False))
    assert (result.verdict, result.culprits) == (FAIL, (f"/dev/nvidia3: {word}",))
    assert f"GPUs do not open: /dev/nvidia3: {word}" in result.found
    assert jobs.evaluate_gres(steps, Gres(count=8, isolated=True, stand_ins=True)).verdict is PASS


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
    assert jobs.evaluate_gres(found, Gres(count=8, isolated=isolated, stand_ins=False)).verdict is verdict


ROOT_MOUNT = "540 514 0:60 / / rw,relatime master:119 - overlay overlay rw\n"
OF_JOB = """\
584 541 0:60 {base}/h200-1b-1/3/.3/_tmp /tmp rw,relatime - overlay overlay rw
585 541 0:60 {base}/h200-1b-1/3/.3/_var_tmp /var/tmp rw,relatime - overlay overlay rw
546 545 0:65 / /dev/shm rw,nosuid,nodev master:123 - tmpfs tmpfs rw,size=2468412k
581 546 0:77 / /dev/shm rw,relatime - tmpfs tmpfs rw
"""
OF_NODE = """\
541 540 0:62 / /tmp rw,nosuid,nodev master:120 - tmpfs tmpfs rw
546 545 0:65 / /dev/shm rw,nosuid,nodev master:123 - tmpfs tmpfs rw,size=2468412k
"""


@pytest.mark.parametrize("base", ["/var/lib/gpucluster-tmp", "/.gpucluster-tmp", ""])
def test_folders_of_a_job_are_private_wherever_they_are(base):
    got = (QueryOutput(code=0, stdout=ROOT_MOUNT + OF_JOB.format(base=base)),)
    found = jobs.evaluate_folders(jobs.parse_folders(got), PrivateFolders(paths=jobs.PRIVATE_FOLDERS))
    assert found.verdict is PASS


def test_folders_that_all_jobs_share_are_named():
    got = (QueryOutput(code=0, stdout=ROOT_MOUNT + OF_NODE),)
    found = jobs.evaluate_folders(jobs.parse_folders(got), PrivateFolders(paths=jobs.PRIVATE_FOLDERS))
    assert found.verdict is FAIL
    assert "/tmp, /var/tmp, /dev/shm" in found.found


@pytest.mark.parametrize(
    ("states", "node_", "reason", "verdict"),
    [
        ({"COMPLETED"}, ("e1",), "None", PASS),
        ({"COMPLETED"}, ("x",), "None", FAIL),
        ({"COMPLETED"}, (), "None", FAIL),
        ({"FAILED"}, ("e1",), "NonZeroExitCode", FAIL),
        ({"RUNNING"}, ("e1",), "None", FAIL),
    ],
)
def test_small_jobs(states, node_, reason, verdict):
    ended = SlurmJob(
        id=1, states=frozenset(states), nodes=node_, node_count=1, partitions=("gpu",), requeueable=True, batch=True,
        reason=reason, admin_comment="gpucluster: no h200",
    )  # fmt: skip
    finding = jobs.evaluate_small(ended, Small(partition="gpu", nodes=("e1",), limit_s=60))
    assert finding.verdict is verdict
    assert states == {"COMPLETED"} or "gpucluster: no h200" in finding.found


WHOLE = (
    (0.0, "POWERED_DOWN"),
    (1.0, "POWERING_UP"),
    (5.0, "RUNNING"),
    (9.0, "IDLE"),
    (19.0, "POWERING_DOWN"),
    (22.0, "POWERED_DOWN"),
)


@pytest.mark.parametrize(
    ("transitions", "instance", "verdict", "found"),
    [
        (WHOLE, "", PASS, "up in 4.0 s, off 13.0 s after its job"),
        (WHOLE, "i-1", FAIL, "i-1 runs at its address"),
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
        ((), "", UNKNOWN, "no sample"),
        ((*WHOLE[:2], (99.0, "RUNNING"), *WHOLE[3:]), "", FAIL, "up in 98.0 s"),
    ],
)  # fmt: skip
def test_power_saving_cycles(transitions, instance, verdict, found):
    cycle = NodeCycle(node="e1", transitions=transitions, instance=instance)
    finding = power_saving.evaluate_cycles(
        Cycles(released_s=8.0, nodes=(cycle,)), PowerCycle(up_s=60, down_s=60)
    )
    assert finding.verdict is verdict
    assert found in finding.found


def test_orphans():
    head = Instance(id="i-0", cluster="burst", role="head", request="", subnet="s1")
    ours = Instance(id="i-1", cluster="burst", role="node", request="r1", subnet="s1")
    known = Holdings(instances=(head, ours), head="i-0", open=frozenset(), launched=frozenset({"i-1"}))
    want = Owned(place=SearchScope(cluster="burst", subnets=("s1",)))
    assert cloud.evaluate_holdings(known, want).verdict is PASS
    for instances, words in (
        ((head, replace(ours, id="i-2")), "i-2 (node)"),
        ((head, replace(head, id="i-3")), "i-3 (head)"),
        ((head, replace(ours, role="")), "i-1 (of the daemon, its gpucluster:role is none, not node)"),
        ((head, replace(ours, role="head")), "i-1 (of the daemon, its gpucluster:role is head, not node)"),
        ((ours,), "the head i-0 is not in the list"),
        ((head, replace(ours, subnet="s9")), "i-1 (in s9)"),
    ):
        finding = cloud.evaluate_holdings(replace(known, instances=instances), want)
        assert (finding.verdict is FAIL) == bool(words)
        assert words in finding.found
    login = Instance(
        id="i-4", cluster="burst", role="login", request="", subnet="public", name="burst-login-1"
    )
    standby = Instance(
        id="i-5", cluster="burst", role="standby", request="", subnet="s1", name="burst-standby"
    )
    wide, all_of = replace(want, fixed=("burst-login-1", "burst-standby")), (head, login, standby, ours)
    finding = cloud.evaluate_holdings(replace(known, instances=all_of), wide)
    assert (finding.verdict, finding.found) == (PASS, "the head, 2 for logins and standby and 1 nodes"), (
        "a login machine had no owner, and the remedy was to terminate it"
    )
    assert cloud.evaluate_holdings(replace(known, instances=all_of), want).verdict is FAIL
    twice = replace(known, instances=(*all_of, replace(login, id="i-6")))
    assert "i-6 (login)" in cloud.evaluate_holdings(twice, wide).found
    astray = replace(known, instances=(head, replace(standby, subnet="s9")))
    assert "i-5 (in s9)" in cloud.evaluate_holdings(astray, wide).found
    launching = replace(known, instances=(head, replace(ours, id="i-2")), open=frozenset({"r1"}))
    assert cloud.evaluate_holdings(launching, want).verdict is PASS  # its launch has no outcome yet
    without = replace(launching, instances=(head, replace(ours, id="i-2", role="")))
    assert "i-2 (of the daemon, " in cloud.evaluate_holdings(without, want).found
    assert cloud.evaluate_daemon("000", cloud.Daemon(url="http://h")).verdict is FAIL


def test_nodes_of_kubernetes_beside_slurm_have_an_owner():
    """The remedy of an instance without an owner terminates it."""
    head = Instance(id="i-0", cluster="both", role="head", request="", subnet="s1")
    other = Instance(id="i-7", cluster="both", role="kubernetes-node", request="", subnet="s1")
    known = Holdings(instances=(head, other), head="i-0", open=frozenset(), launched=frozenset())
    slurm = Owned(place=SearchScope(cluster="both", subnets=("s1",)))
    both = replace(slurm, kubernetes=True)
    finding = cloud.evaluate_holdings(known, both)
    assert (finding.verdict, finding.found) == (PASS, "the head, 1 of Kubernetes and 0 nodes")
    assert "i-7 (kubernetes-node)" in cloud.evaluate_holdings(known, slurm).found
    assert (
        "i-7 (in s9)"
        in cloud.evaluate_holdings(replace(known, instances=(head, replace(other, subnet="s9"))), both).found
    )
    ours = replace(known, launched=frozenset({"i-7"}))  # the daemon's node with a changed tag
    finding = cloud.evaluate_holdings(ours, both)
    assert "i-7 (of the daemon, its gpucluster:role is kubernetes-node, not node)" in finding.found
    assert (
        finding.remedy
        == "aws ec2 create-tags --resources i-7 --tags Key=gpucluster:cluster,Value=both Key=gpucluster:role,Value=node"
    )


PROGRAMS = ("aws", "gpucluster", "kubectl", "pulumi")


def test_every_check_has_a_command_as_remedy_and_existing_needs():
    for check in CHECKS.values():
        assert ": " in check.remedy or check.remedy.split()[0] in PROGRAMS, check.id
        for need in check.needs:
            assert need.partition(":")[0].partition("@")[0] in CHECKS
    order = list(CHECKS)
    for check in CHECKS.values():
        for need in check.needs:
            before, _, where = need.partition(":")[0].partition("@")
            assert order.index(before) < order.index(check.id) or (before, where) == (check.id, "head")


def test_foreign_text_is_printable():
    assert short("a\x1b[2J\nb\u202e\r\x00c") == "a b\ufffd \ufffdc"
    assert len(short("x" * 10_000)) == 200


def test_many_instances_that_are_no_nodes_make_a_short_remedy() -> None:
    """Each of them had a command of its own, all in one line."""
    want = KubernetesInstances(cluster="kube")
    few = evaluate_instances(NodeInstances(ages_s={"i-1": 1e4, "i-2": 1e4}, nodes={"n": "i-3"}), want)
    assert few.remedy == "aws ec2 terminate-instances --instance-ids i-1 i-2; kubectl delete node n"
    many = evaluate_instances(NodeInstances(ages_s={f"i-{n:03}": 1e4 for n in range(500)}, nodes={}), want)
    assert many.remedy.endswith(" i-049; gpucluster validate {cluster}")
    assert len(many.culprits) == 500

"""The kinds of fault of one check: each is told apart, and has the remedy that heals it and not that of another."""

import json
from dataclasses import replace

import pytest

from gpucluster.checks import accounting, health_program, machine, munge, slurmctld
from gpucluster.checks.accounting import DatabaseFault, Registered
from gpucluster.checks.check import CheckResult, QueryOutput
from gpucluster.checks.kubernetes import applied
from gpucluster.checks.kubernetes.applied import ObjectFault
from gpucluster.checks.machine import Unit, UnitFault
from gpucluster.checks.munge import MungeFault
from gpucluster.checks.node_health import NODE_CHECKS
from gpucluster.checks.slurmctld import NodeFault, SlurmdFault
from gpucluster.slurm.values import SlurmNode
from gpucluster.validate.expectation import EVERY_CHECK

LOCAL = accounting.Database(cluster="lab", units=("mariadb", "slurmdbd"))
ELSEWHERE = replace(LOCAL, units=("slurmdbd",))
GOOD = Registered(answers=True, controller="10.0.0.1:6817", waiting=(0, 0), read_only=False)
UNITS = machine.Units(
    units=("munge.service", "mariadb.service"), off=("slurmd.service",), at_boot=("munge.service",)
)
UP = Unit(load="loaded", active="active", restarts=0, file="enabled")
TWO = slurmctld.Nodes(elastic=("e1",), always_on=("a1",))


def of_database(found: Registered, want: accounting.Database = LOCAL) -> CheckResult:
    return accounting.evaluate_database(found, want)


OFF = replace(UP, active="inactive")


def of_units(munged: Unit, slurmd: Unit = OFF) -> CheckResult:
    return machine.evaluate_units(
        {"munge.service": munged, "mariadb.service": UP, "slurmd.service": slurmd}, UNITS
    )


def of_munge(*words: str) -> CheckResult:
    return munge.evaluate_munge((*words, "uid 0"), munge.Munge())


def of_slurmd(found: str) -> CheckResult:
    least = slurmctld.LeastRelease(version="24.11.6", mends="CVE-2026-1")
    return slurmctld.evaluate_slurmd(found, slurmctld.Slurmd(release="24.11", least=least))


def of_nodes(
    *states: str,
    reason: str = "",
    by: str = "root",
    more: tuple[SlurmNode, ...] = (),
    always_on: str = "IDLE",
) -> CheckResult:
    first = SlurmNode(name="e1", states=frozenset(states), reason=reason, reason_by=by, partitions=("p",))
    second = SlurmNode(name="a1", states=frozenset(always_on.split()), partitions=("p",))
    return slurmctld.evaluate_nodes((first, second, *more), TWO)


def of_health(check: str) -> CheckResult:
    want = health_program.Program(path="/x", checks=(check,))
    return health_program.evaluate_program({check: ("fail", "broken")}, want)


def of_objects(another: str = "", **faults: list[str]) -> CheckResult:
    wave = {"folder": "10-namespaces", "missing": [], "changed": [], "unread": [], **faults}
    status = json.dumps({"another": another, "waves": [wave]})
    found = applied.parse_objects((QueryOutput(code=0, stdout=status),))
    return applied.evaluate_objects(found, applied.Objects(folders=("10-namespaces",)))


EDITED = "research/Deployment/a (kubectl-edit has set .spec.replicas)"
# check, family, what is found, words of its remedy, words that it must not have
CASES: list[tuple[str, str, CheckResult, tuple[str, ...], tuple[str, ...]]] = [
    ("acct.db", DatabaseFault.READ_ONLY, of_database(replace(GOOD, read_only=True)), ("SET GLOBAL read_only = 0", "grep -rnsE"), ("restart",)),
    ("acct.db", DatabaseFault.READ_ONLY, of_database(replace(GOOD, read_only=True, answers=False)), ("read_only = 0'; test $(mariadb", "&& systemctl restart slurmdbd"), ("restart mariadb",)),
    ("acct.db", DatabaseFault.SILENT, of_database(replace(GOOD, answers=False)), ("read_only') = 0 && systemctl restart slurmdbd",), ("restart mariadb",)),
    ("acct.db", DatabaseFault.SILENT, of_database(replace(GOOD, answers=False, read_only=None), ELSEWHERE), ("on {machine}: systemctl restart slurmdbd",), ("mariadb",)),
    ("acct.db", DatabaseFault.DATABASE_SILENT, of_database(replace(GOOD, answers=False, read_only=None)), ("systemctl restart mariadb; test $(mariadb",), ()),
    ("acct.db", DatabaseFault.UNREGISTERED, of_database(replace(GOOD, controller="")), ("scontrol reconfigure",), ("restart",)),
    ("acct.db", DatabaseFault.WAITING, of_database(replace(GOOD, waiting=(900, 900))), ("&& systemctl restart slurmdbd; scontrol reconfigure",), ("restart mariadb",)),
    ("auth.rt", MungeFault.SILENT, of_munge("munged does not answer in time"), ("&& systemctl restart munge;",), ("agent", "chronyc")),
    ("auth.rt", MungeFault.SILENT, of_munge("munge failed: munge: Error: Failed to access \"/run/munge/munge.socket.2\""), ("&& systemctl restart munge;",), ("agent",)),
    ("auth.rt", MungeFault.KEY, of_munge("unmunge: Error: Invalid credential"), ("systemctl restart gpucluster-agent munge",), ("chronyc",)),
    ("auth.rt", MungeFault.CLOCK, of_munge("Expired credential"), ("chronyc makestep",), ("restart",)),
    ("auth.rt", MungeFault.CLOCK, of_munge("unmunge: Error: Rewound credential"), ("chronyc makestep",), ("restart",)),
    ("svc.active", UnitFault.INACTIVE, of_units(replace(UP, active="failed")), ("munge.key && systemctl restart munge;",), ("unmask", "verify")),
    ("svc.active", UnitFault.MASKED, of_units(replace(UP, active="inactive", load="masked")), ("systemctl unmask munge;", "&& systemctl restart munge"), ("verify",)),
    ("svc.active", UnitFault.ABSENT, of_units(replace(UP, active="inactive", load="not-found")), ("daemon-reload; systemd-analyze verify", "munge.service && test -s", "files.ours"), ("unmask",)),
    ("svc.active", UnitFault.BAD_FILE, of_units(replace(UP, active="inactive", load="bad-setting")), ("systemd-analyze verify",), ("unmask",)),
    ("svc.active", UnitFault.FOREIGN, of_units(UP, slurmd=UP), ("systemctl disable --now slurmd",), ("restart",)),
    ("svc.active", UnitFault.NOT_AT_BOOT, of_units(replace(UP, file="disabled")), ("systemctl enable munge",), ("restart",)),
    ("svc.active", UnitFault.RESTLESS, of_units(replace(UP, restarts=3)), ("journalctl --no-pager -n 30 -u munge; systemctl reset-failed munge",), ("systemctl restart",)),
    ("slurmd.ping", SlurmdFault.SILENT, of_slurmd(""), ("--conf-server", "&& systemctl restart slurmd"), ("apt-cache",)),
    ("slurmd.ping", SlurmdFault.RELEASE, of_slurmd("23.11.1"), ("apt-cache policy slurm-client",), ("systemctl",)),
    ("slurmd.ping", SlurmdFault.UNMENDED, of_slurmd("24.11.5"), ("24.11.6 or newer",), ("systemctl",)),
    ("nodes.state", NodeFault.OTHERS, of_nodes("IDLE", more=(SlurmNode(name="x9", states=frozenset({"IDLE"})),)), ("scontrol reconfigure",), ("update",)),
    ("nodes.state", NodeFault.FORGED, of_nodes("IDLE", "DRAIN", reason="gpucluster: [nobody] by hand"), ("on {machine}: scontrol update nodename=e1 state=undrain",), ("sinfo",)),
    ("nodes.state", NodeFault.DRAINED, of_nodes("IDLE", "DRAIN", reason="broken fan"), ("sinfo -R", "scontrol update nodename=e1 state=undrain"), ("systemctl",)),
    ("nodes.state", NodeFault.OFF, of_nodes("IDLE", always_on="IDLE POWERED_DOWN"), ("scontrol update nodename=a1 state=power_up",), ("slurmd",)),
    ("nodes.state", NodeFault.DOWN, of_nodes("DOWN", "NOT_RESPONDING", reason="Not responding", by="slurm"), ("on each of e1:", "&& systemctl restart slurmd", "sinfo -R"), ("scontrol update",)),
    ("nodes.state", NodeFault.BLOCKED, of_nodes("IDLE", "DRAIN", "POWERED_DOWN", reason="gpucluster: InsufficientInstanceCapacity", by="slurm"), ("the daemon asks EC2 again",), ("scontrol",)),
    ("kube.objects", ObjectFault.ANOTHER, of_objects("it is of another cluster"), ("kubectl config use-context",), ("k8s up",)),
    ("kube.objects", ObjectFault.CONFLICT, of_objects(changed=[EDITED], missing=["a"]), ("gpucluster k8s up {cluster} --force-conflicts",), ()),
    ("kube.objects", ObjectFault.DIFFERENT, of_objects(changed=["a"], unread=["b"]), ("gpucluster k8s up {cluster}",), ("--force",)),
    ("kube.objects", ObjectFault.DIFFERENT, of_objects(missing=["a"]), ("gpucluster k8s up {cluster}",), ("--force",)),
    ("kube.objects", ObjectFault.UNREAD, of_objects(unread=["you may not patch jobs (1)"]), ("kubectl auth can-i --list",), ("k8s up",)),
    ("node.health", health_program.ABSENT, health_program.evaluate_program({}, health_program.Program(path="/x", checks=("gpu.ecc",))), ("gpucluster image build",), ()),
    *(("node.health", check, of_health(check), (f"on {{machine}}: /x --report; {NODE_CHECKS[check].remedy.removeprefix('on {machine}: ')}",), ("image build",)) for check in NODE_CHECKS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "family", "found", "has", "lacks"), CASES, ids=[f"{row[0]} {row[1]}" for row in CASES]
)
def test_each_kind_of_fault_has_its_own_remedy(
    check: str, family: str, found: CheckResult, has: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    assert (found.family, found.is_healthy and found.verdict == "pass") == (family, False), found
    assert [words for words in has if words not in found.remedy] == [], found.remedy
    assert [words for words in lacks if words in found.remedy] == [], found.remedy


def test_every_family_of_the_table_has_a_case() -> None:
    made = {(check, family) for check, family, *_ in CASES}
    assert made == {(check.id, family) for check in EVERY_CHECK.values() for family in check.families}


def test_mariadb_is_asked_only_where_it_runs() -> None:
    """V4: a read-only database was healthy until 50 records waited."""
    assert [query.argv[0] for query in accounting.query_database(LOCAL)][-1] == "mariadb"
    assert len(accounting.query_database(ELSEWHERE)) == 3
    row, queue = (
        QueryOutput(code=0, stdout="lab|192.0.2.10|6817\n"),
        QueryOutput(code=0, stdout='{"statistics": {"dbd_agent_queue_size": 0}}'),
    )
    for answer, read_only in (("0\n", False), ("1\n", True), ("OFF\n", False), ("ON\n", True), ("", None)):
        got = (row, queue, queue, QueryOutput(code=0, stdout=answer))
        assert accounting.parse_database(got).read_only is read_only
    late = QueryOutput(code=1, stdout="", stderr="ERROR 2002 (HY000): Can't connect to local server")
    assert accounting.parse_database((row, queue, queue, late)).read_only is None

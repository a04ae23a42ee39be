"""Mount options of shared folders against the plan's, on a machine and in a job, with real mounts in namespaces of their own."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support import builders
from support.waiting import BOUND_S

from gpucluster.checks import health_wants, job_mounts, mount_wants, mounts
from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.plan.model import Mount, NfsFromHead, OtherMount, SiteEfs
from gpucluster.validate import expectations

PASS, FAIL = CheckStatus.PASS, CheckStatus.FAIL
HOME = mounts.MountWant(path="", types=("tmpfs",), source="", has=("nosuid", "nodev"), lacks=("ro", "noexec"))


def in_namespace(options: str, path: Path, *commands: str) -> str:
    """mountinfo of a namespace where a file system with these options lies at `path`, after `commands`."""
    script = "; ".join((f"mount -t tmpfs -o {options} none {path}", *commands, "cat /proc/self/mountinfo"))
    done = subprocess.run(
        ["/usr/bin/unshare", "--mount", "/bin/sh", "-ec", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=BOUND_S,
    )
    return done.stdout


def judged(text: str, path: Path) -> CheckResult:
    want = mounts.Mounts(mounts=(replace(HOME, path=str(path)),))
    return mounts.evaluate_mounts(mounts.parse_mounts((QueryOutput(code=0, stdout=text),)), want)


@pytest.mark.parametrize(
    ("options", "words", "remount"),
    [
        ("nosuid,nodev,noexec", "{path} is mounted noexec", "exec"),
        ("nosuid,nodev,ro", "{path} is read-only", "rw"),
        ("nodev", "{path} is mounted without nosuid", "nosuid"),
        ("ro,noexec", "{path} is read-only, {path} is mounted noexec, {path} is mounted without nosuid, {path} is mounted without nodev", "rw,exec,nosuid,nodev"),
    ],
)  # fmt: skip
def test_other_option_than_the_plans_is_found_and_its_remedy_heals_it(tmp_path, options, words, remount):
    """V5: /home was mounted noexec, and everything was healthy."""
    result = judged(in_namespace(options, tmp_path), tmp_path)
    assert (result.verdict, result.found) == (FAIL, words.format(path=tmp_path))
    remedy = f"mount -o remount,{remount} {tmp_path}"
    assert result.remedy == f"on {{machine}}: {remedy}"
    assert judged(in_namespace(options, tmp_path, remedy), tmp_path).verdict is PASS


def test_mount_with_the_options_of_the_plan_passes(tmp_path):
    assert judged(in_namespace("nosuid,nodev", tmp_path), tmp_path).verdict is PASS


def flags(source) -> tuple[tuple[str, ...], tuple[str, ...]]:
    plan = replace(builders.a_lab_plan(), storage=(Mount(path="/home", source=source),))
    (want,) = mount_wants.wanted(plan, on_head=False)
    return want.has, want.lacks


@pytest.mark.parametrize(
    ("source", "has", "lacks"),
    [
        (NfsFromHead(server="192.0.2.10", export="/srv/home"), ("nosuid", "nodev"), ("ro", "noexec")),
        (NfsFromHead(server="192.0.2.10", export="/srv/home", stand_in=True), (), ("ro", "noexec")),
        (SiteEfs(id="fs-1"), ("nosuid", "nodev"), ("ro", "noexec")),
        (OtherMount(type="beegfs", source="x", options=()), ("nosuid", "nodev"), ("ro", "noexec")),
        (OtherMount(type="beegfs", source="x", options=("ro", "suid")), ("ro", "nodev"), ("noexec", "nosuid")),
        (OtherMount(type="nfs", source="x", options=("noexec", "exec")), ("nosuid", "nodev"), ("ro", "noexec")),
        (OtherMount(type="nfs", source="x", options=("noexec", "dev")), ("noexec", "nosuid"), ("ro", "nodev")),
    ],
    ids=["nfs", "stand-in", "efs", "other", "read-only with suid", "the last word counts", "noexec with dev"],
)  # fmt: skip
def test_options_are_those_of_the_plan(source, has, lacks):
    assert flags(source) == (has, lacks)


def test_folders_of_a_rehearsal_have_no_options_of_a_client():
    by_id = {e.id: e.want for e in expectations(builders.a_lab_plan(), folders=True)}
    for ident in ("fs.mount[gpu01]", "job.mounts[h100]"):
        (home,) = [one for one in by_id[ident].mounts if one.path == "/home"]
        assert (home.types, home.has, home.lacks) == ((), (), ("ro", "noexec"))


# --- in a job --------------------------------------------------------------------------------------------
def of_job(path: Path, options: str, *, nodes: int = 1, name: str = "gpu01") -> CheckResult:
    want = job_mounts.JobMountsWant(mounts=(replace(HOME, path=str(path)),), nodes=nodes)
    (query,) = job_mounts.query_mounts(want)
    script = f'mount -t tmpfs -o {options} none {path}; exec "$@"'
    done = subprocess.run(
        ["/usr/bin/unshare", "--mount", "/bin/sh", "-ec", script, "sh", *query.argv[1:]],
        capture_output=True,
        text=True,
        check=True,
        timeout=BOUND_S,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "SLURMD_NODENAME": name},
    )
    got = job_mounts.parse_mounts((QueryOutput(code=0, stdout=done.stdout),))
    return job_mounts.evaluate_mounts(got, want)


def test_job_mounts_of_a_namespace_with_the_plans_options_pass(tmp_path):
    assert of_job(tmp_path, "nosuid,nodev").verdict is PASS


@pytest.mark.parametrize(
    ("options", "words"),
    [("nosuid,nodev,noexec", "is mounted noexec"), ("nosuid,nodev,ro", "is read-only")],
)
def test_option_of_a_job_alone_is_a_fault_of_job_mounts(tmp_path, options, words):
    """slurmd may have a namespace of its own, in which a drop-in closes a folder: the machine's own table is as planned."""
    result = of_job(tmp_path, options)
    assert (result.verdict, result.culprits) == (FAIL, ("gpu01",))
    assert result.found == f"gpu01: {tmp_path} {words}"


def test_node_without_an_answer_is_no_pass(tmp_path):
    result = of_job(tmp_path, "nosuid,nodev", nodes=2)
    assert (result.verdict, result.found) == (FAIL, "1 nodes answered")
    with pytest.raises(ParseError):
        job_mounts.parse_mounts((QueryOutput(code=0, stdout="gpu01 what is this\n"),))


def test_health_program_compares_no_options_but_that_a_folder_is_writable():
    """It drains nodes. Regression: it drained every node of a plan that mounts a folder read-only."""
    shown = {
        path: mounts.Mounted(type="nfs4", source="x", options=frozenset(options))
        for path, options in (("/home", ("noexec",)), ("/ref", ("ro",)))
    }
    reference = Mount(path="/ref", source=OtherMount(type="nfs", source="x", options=("ro",)))
    plan = builders.a_lab_plan(("\npools:", "\nhealth: {}\npools:"))
    plan = replace(plan, storage=(*plan.storage, reference))
    want = health_wants.settings(plan, plan.pools[0], "gpu01", {}).mounts
    table = mounts.MountTable(mounts=shown, exports=frozenset())
    assert mounts.evaluate_mounts(table, want).verdict is PASS
    shown["/home"] = replace(shown["/home"], options=frozenset({"ro"}))
    assert mounts.evaluate_mounts(table, want).culprits == ("/home",)

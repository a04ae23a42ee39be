"""A run over a simulated cluster: verdicts, blocked checks, jobs, reports."""

import json
import os
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from support import builders
from support.standing_cluster import HEAD, Ec2, StandingCluster

from gpucluster.checks.check import CheckStatus
from gpucluster.errors import GpuclusterError
from gpucluster.validate import boots, expectations
from gpucluster.validate.expect import select
from gpucluster.validate.report import headline, html
from gpucluster.validate.results import Run, find, unhealthy
from gpucluster.validate.run import run
from gpucluster.validate.session import RunContext

HOSTILE = "</td><script>alert(1)</script>\x1b[2J"


def lab(**answers):
    plan = builders.a_lab_plan()
    return StandingCluster(
        plan, up=[node for pool in plan.pools for node, _ in pool.hosts()], answers=answers
    )


def ran(cluster, *, only=(), tier=1, junit=None, aws=None, told=lambda _e, _r: None, chosen=()) -> Run:
    context = RunContext(plan=cluster.plan, user="vision", aws=aws)
    chosen = chosen or select(expectations(cluster.plan), tier=tier, only=only)
    return run(context, cluster, chosen, junit=junit, on_progress=told)


def bad(done: Run) -> dict[str, tuple[str, str]]:
    return {r.id: (r.verdict.value, r.blocked_by) for r in unhealthy(done.results)}


def test_healthy_lab_passes_and_jobs_are_cancelled():
    cluster = lab()
    done = ran(cluster)
    assert bad(done) == {}
    assert (done.ok, len(done.results)) == (True, len(expectations(cluster.plan)))
    assert cluster.jobs
    assert cluster.living_jobs() == []
    assert cluster.closed >= 1
    assert all("--time=" in command for _, command in cluster.commands if "sbatch" in command)
    assert all(
        "runuser --user=vision " in command
        for _, command in cluster.commands
        if "sbatch" in command or "srun" in command
    )
    assert all(command.startswith("timeout --kill-after=2 ") for _, command in cluster.commands)


def test_check_that_needs_a_failed_check_is_unknown_and_names_it():
    units = "NRestarts=0\nId={}.service\nLoadState=loaded\nActiveState={}\n"
    dead = "\n".join(
        units.format(u, "failed" if u == "slurmctld" else "active")
        for u in ("munge", "slurmctld", "gpucluster-agent")
    )
    done = ran(
        lab(**{"head: systemctl show": dead, "head: scontrol": (1, "Unable to contact slurm controller")})
    )
    found = bad(done)
    assert found.pop("svc.active[head]") == ("fail", "")
    assert set(found.values()) == {("unknown", "svc.active[head]")}
    assert {"ctl.ping[head]", "nodes.state[head]", "job.multi[h100]", "job.gres[h100]"} <= found.keys()
    asked = find(done.results, "auth.rt[gpu01]")
    assert asked is not None
    assert asked.verdict is CheckStatus.PASS  # munge is well


def test_unit_that_does_not_start_at_boot_blocks_no_other_check():
    """Regression: a disabled guard made every check of the head that needs a unit unknown, and those of its nodes."""
    cluster = StandingCluster(builders.a_plan())
    asked = next(e.want for e in cluster.expected() if e.id == "svc.active[head]")
    cluster.answers["head: systemctl show --property=Id"] = "\n".join(
        f"NRestarts=0\nId={unit}\nLoadState=loaded\nActiveState=active\n"
        f"UnitFileState={'disabled' if unit == 'gpucluster-guard.service' else 'enabled'}\n"
        for unit in asked.units
    )
    cluster.answers["show partition"] = "PartitionName=other State=UP Nodes=(null)\n"
    done = ran(cluster, tier=0, aws=lambda _: Ec2(HEAD))
    assert bad(done) == dict.fromkeys(("svc.active[head]", "part.up[head]"), ("fail", ""))


def test_jobs_of_the_node_are_asked_by_its_name_in_the_plan():
    """Regression: with another node's host name `node.strays` took that node's jobs for this one's, and named the others strays."""
    cluster = lab()
    assert ran(cluster, tier=0, only=["node.strays"]).ok
    asked = {machine: command for machine, command in cluster.commands if "--nodelist" in command}
    assert asked.keys() == set(cluster.up)
    assert all(
        command.endswith(f" {machine}") and "hostname" not in command for machine, command in asked.items()
    )


TWO = ("default: true}", "default: true}\n  - {name: quick, pools: [h100], max_time: 30m}")


@pytest.mark.parametrize(
    ("change", "blocked"),
    [
        (("default=", "YES", "NO"), set()),
        (("maxtime=", "UNLIMITED", "01:00:00"), set()),
        (("state=", "UP", "DOWN"), {"job.multi[h100]", "job.gres[h100]", "job.limits[h100]", "job.home[h100]", "job.mounts[h100]", "job.tmp[h100]", "topo.place[h100]", "job.part[gpu]"}),
    ],
)  # fmt: skip
def test_partition_blocks_only_the_jobs_in_it(change, blocked):
    """Regression: a second default partition made 27 results unknown."""
    plan = builders.a_lab_plan(TWO)
    healthy = StandingCluster(plan)
    first, second = healthy.partitions("head", None).splitlines()  # type: ignore[arg-type]
    key, before, after = change
    assert f"{key}{before}" in first
    answer = f"{first.replace(f'{key}{before}', f'{key}{after}')}\n{second}\n"
    up = [node for pool in plan.pools for node, _ in pool.hosts()]
    done = ran(StandingCluster(plan, up=up, answers={"show partition": answer}))
    found = bad(done)
    assert found.pop("part.up[head]") == ("fail", "")
    assert found == dict.fromkeys(blocked, ("unknown", "part.up[head]"))


def test_unreachable_machine_is_unknown_and_others_are_checked():
    cluster = lab()
    cluster.up = tuple(node for node in cluster.up if node != "gpu03")
    done = ran(cluster, tier=0)
    found = bad(done)
    assert found["nodes.state[head]"][0] == "fail"
    away = {ident for ident, (verdict, _) in found.items() if verdict == "unknown"}
    assert away
    assert all("[gpu03]" in ident for ident in away)


def test_failed_job_blocks_the_checks_on_its_nodes():
    job = {
        "job_id": 1,
        "node_count": 1,
        "requeue": True,
        "batch_flag": True,
        "nodes": "",
        "admin_comment": "",
        "job_state": ["FAILED"],
        "state_reason": "NonZeroExitCode",
    }
    cluster = lab(**{"show job 1 ": json.dumps({"jobs": [job], "errors": []})})
    first, second = ran(cluster, only=["job.multi", "job.gres"]).results
    assert (first.verdict, "NonZeroExitCode" in first.found) == (CheckStatus.FAIL, True)
    assert (second.verdict, second.blocked_by) == (CheckStatus.UNKNOWN, "job.multi[h100]")
    assert any("scancel --name=gpucluster-validate-" in command for _, command in cluster.commands)


def test_job_that_the_cloud_refuses_fails_with_the_remedy_of_the_daemon():
    waits = {"job_id": 1, "node_count": 1, "requeue": True, "batch_flag": True, "nodes": "", "admin_comment": "", "job_state": ["PENDING"], "state_reason": "Resources"}  # fmt: skip
    remedy = {"part": "remedy", "words": "another zone would help", "at": None, "needs": None}
    screen = {"cause": "refused", "headline": "waits: no h100", "lines": [remedy]}
    answers = {
        "show job 1 ": json.dumps({"jobs": [waits], "errors": []}),
        "elastic.inspect.why": json.dumps(screen),
    }
    cluster = lab(**answers)
    (small,) = select(expectations(cluster.plan), tier=1, only=["job.part"])
    done = ran(cluster, chosen=[replace(small, want=replace(small.want, limit_s=0.0))])
    (result,) = done.results
    assert (result.verdict, result.remedy) == (CheckStatus.FAIL, "another zone would help")
    assert "PENDING after 0 s (Resources): waits: no h100" in result.found
    assert cluster.living_jobs() == []


def test_refused_submission_fails_with_the_error_of_sbatch():
    done = ran(lab(sbatch=(1, "sbatch: error: invalid account")), only=["job.multi"])
    assert (done.results[0].verdict, "invalid account" in done.results[0].found) == (CheckStatus.FAIL, True)


def test_jobs_are_cancelled_at_every_exit():
    cluster = lab()

    def interrupt(_machine, command):
        if "srun" in command:
            raise KeyboardInterrupt

    cluster.before_run = interrupt
    with pytest.raises(KeyboardInterrupt):
        ran(cluster, only=["job.multi"])
    assert cluster.jobs == {1: "CANCELLED"}


def test_cloud_is_checked_with_an_ec2_client():
    burst = StandingCluster(builders.a_plan())
    burst_run = ran(burst, tier=0, aws=lambda _: Ec2(HEAD))
    assert bad(burst_run) == {}
    assert bad(ran(StandingCluster(builders.a_plan()), tier=0)) == dict.fromkeys(
        ("cloud.orphans[cloud]", "cloud.journal[cloud]"), ("unknown", "")
    )
    unknown = {**HEAD, "InstanceId": "i-99999999", "Tags": []}
    done = ran(StandingCluster(builders.a_plan()), tier=0, aws=lambda _: Ec2(HEAD, unknown))
    assert bad(done) == {"cloud.orphans[cloud]": ("fail", "")}


def test_exception_in_a_check_makes_the_run_fail():
    cluster = lab()
    disk, ping = select(expectations(cluster.plan), tier=0, only=["ctl.ping", "disk[head]"])
    broken = replace(disk, want=ping.want)
    with pytest.raises(GpuclusterError, match=r"no result of disk\[head\]: AttributeError"):
        ran(cluster, chosen=[ping, broken])
    assert cluster.closed


def test_pytest_configuration_of_the_user_is_ignored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conftest.py").write_text("raise RuntimeError('mine')")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--nonsense")
    monkeypatch.setenv("PYTEST_PLUGINS", "a_plugin_that_is_not_there")
    assert ran(lab(), only=["ctl.ping"]).ok
    assert os.environ["PYTEST_ADDOPTS"] == "--nonsense"


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        (("IDLE", "POWERED_DOWN"), "warn"),
        (("IDLE", "NOT_RESPONDING", "POWERING_UP"), "warn"),
        (("IDLE",), "unknown"),
    ],
)
def test_node_that_powers_down_during_the_run_is_a_warning(states, verdict):
    plan = builders.a_plan()
    cluster = StandingCluster(plan, up=["h200-2a-3"])
    nodes = json.loads(cluster.nodes("head", None))  # type: ignore[arg-type]
    gone = next(node for node in nodes["nodes"] if node["name"] == "h200-2a-3")
    gone["state"] = list(states)
    cluster.answers["show nodes"] = json.dumps(nodes)
    cluster.up = ()
    chosen = select(
        expectations(plan, up=["h200-2a-3"]), tier=0, only=["svc.active[h200-2a-3]", "disk[h200-2a-3]"]
    )
    done = ran(cluster, chosen=chosen)
    assert [r.verdict.value for r in done.results] == [verdict, verdict]


def test_node_that_was_off_and_runs_a_job_of_validation_is_checked():
    """Regression, on a busy machine: the node was off at its own checks, and those of the job on it stayed unknown."""
    plan, node = builders.a_plan(), "h200-2a-3"
    cluster = StandingCluster(plan)

    def launch(_machine: str, command: str) -> None:
        if "sbatch" in command:
            cluster.up = (node, "h200-2a-4")

    cluster.before_run = launch
    ids = [f"disk[{node}]", f"svc.active[{node}]", "disk[h200/1]", "svc.active[h200/1]"]
    chosen = select(expectations(plan, up=[node]), tier=1, only=ids)
    assert [expectation.id for expectation in chosen] == ids
    assert [result.verdict.value for result in ran(cluster, chosen=chosen).results] == [
        "warn",
        "warn",
        "pass",
        "pass",
    ]


def test_run_after_up_waits_until_the_standing_nodes_are_up(monkeypatch):
    """Regression: `validate` right after `pulumi up` called two nodes that booted a fault, and 31 checks unknown."""
    monkeypatch.setattr(boots, "POLL_S", 0.0)
    plan = builders.a_plan(("min: 0, max: 16", "min: 2, max: 16"))
    up = [node for pool in plan.pools for node in pool.always_on()]
    cluster, asked = StandingCluster(plan), []
    nodes = json.loads(cluster.nodes("head", None))  # type: ignore[arg-type]
    for node in nodes["nodes"]:
        if node["name"] in up:
            node["state"] = ["IDLE", "CLOUD", "NOT_RESPONDING", "POWERING_UP"]
    cluster.answers["show nodes"] = json.dumps(nodes)

    def boot(_machine: str, command: str) -> None:
        asked.append("show nodes" in command)
        if sum(asked) == 3:
            cluster.up = tuple(up)
            del cluster.answers["show nodes"]

    cluster.before_run = lambda machine, command: boot(machine, command) if not cluster.up else None
    found = bad(ran(cluster, tier=0))
    assert [ident for ident in found if not ident.startswith("cloud.")] == []
    assert sum(asked) == 3


def test_progress_is_reported_before_and_after_each_check():
    received = []
    done = ran(
        lab(), only=["ctl.ping", "disk[gpu01]"], told=lambda e, r: received.append((e.id, r and r.verdict))
    )
    assert received == [
        ("ctl.ping[head]", None),
        ("ctl.ping[head]", CheckStatus.PASS),
        ("disk[gpu01]", None),
        ("disk[gpu01]", CheckStatus.PASS),
    ]
    assert done.ok


def test_hostile_text_is_escaped_in_every_report(tmp_path):
    cluster = lab()
    nodes = json.loads(cluster.nodes("head", None))  # type: ignore[arg-type]
    nodes["nodes"][0] |= {"state": ["DOWN"], "reason": HOSTILE}
    cluster.answers["show nodes"] = json.dumps(nodes)
    junit = tmp_path / "junit.xml"
    done = ran(cluster, tier=0, junit=junit)
    assert bad(done) == {"nodes.state[head]": ("fail", "")}
    page = html(done)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    assert "://" not in page
    cases = {case.get("name"): case for case in ET.parse(junit).iter("testcase")}  # noqa: S314
    failure = cases["nodes.state[head]"].find("failure")
    assert failure is not None
    assert "<script>" in (failure.text or "")
    assert "sinfo -R" in (failure.text or "")
    properties = {p.get("name"): p.get("value") for p in cases["ctl.ping[head]"].iter("property")}
    assert (properties["verdict"], properties["machine"]) == ("pass", "head")
    assert cases.keys() == {result.id for result in done.results}


def test_unknown_is_an_error_in_junit(tmp_path):
    junit = tmp_path / "junit.xml"
    ran(lab(**{"gpu01: df": "nonsense\nnonsense"}), only=["disk"], junit=junit)
    wrong = [case.get("name") for case in ET.parse(junit).iter("testcase") if case.find("error") is not None]  # noqa: S314
    assert wrong == ["disk[gpu01]"]


def test_run_without_checks_is_not_ok():
    empty = Run(name="lab", results=(), seconds=0)
    assert not empty.ok
    assert "no check was run" in headline(empty)


def test_json_has_all_fields():
    done = ran(lab(), only=["ctl.ping"]).as_json()
    assert done["counts"] == {"pass": 1, "warn": 0, "fail": 0, "unknown": 0}
    (row,) = done["results"]
    assert row.keys() == {
        "id", "check", "target", "machine", "tier", "title", "verdict", "found", "expected", "remedy", "seconds",
        "family", "culprits", "blocks", "blocked_by", "stops_work",
    }  # fmt: skip
    assert json.dumps(done)

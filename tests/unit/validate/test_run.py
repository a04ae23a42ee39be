"""A whole run over a cluster that answers: verdicts, what blocks what, our jobs, and the reports."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import builders
import pytest
from standing_cluster import HEAD, Ec2, StandingCluster

from gpucluster.checks.model import Verdict
from gpucluster.errors import GpuclusterError
from gpucluster.validate import expectations
from gpucluster.validate.expect import select
from gpucluster.validate.report import headline, html
from gpucluster.validate.results import Run, find, troubled
from gpucluster.validate.run import run
from gpucluster.validate.stage import Scene

HOSTILE = "</td><script>alert(1)</script>\x1b[2J"


def lab(**answers):
    plan = builders.a_lab_plan()
    return StandingCluster(
        plan, up=[node for pool in plan.pools for node, _ in pool.hosts()], answers=answers
    )


def ran(cluster, *, only=(), tier=1, junit=None, ec2=None, told=lambda _e, _r: None, chosen=()) -> Run:
    scene = Scene(plan=cluster.plan, user="vision", ec2=ec2)
    chosen = chosen or select(expectations(cluster.plan), tier=tier, only=only)
    return run(scene, cluster, chosen, junit=junit, told=told)


def bad(done: Run) -> dict[str, tuple[str, str]]:
    return {r.id: (r.verdict.value, r.blocked_by) for r in troubled(done.results)}


def test_a_healthy_lab_is_green_and_our_jobs_are_gone():
    cluster = lab()
    done = ran(cluster)
    assert bad(done) == {}
    assert (done.ok, len(done.results)) == (True, len(expectations(cluster.plan)))
    assert cluster.jobs
    assert cluster.living_jobs() == []
    assert cluster.closed >= 1
    assert all("--time=" in command for _, command in cluster.asked if "sbatch" in command)
    assert all(
        "runuser --user=vision " in command
        for _, command in cluster.asked
        if "sbatch" in command or "srun" in command
    )
    assert all(command.startswith("timeout --kill-after=2 ") for _, command in cluster.asked)


def test_what_rests_on_what_failed_is_unknown_and_says_on_what():
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
    assert asked.verdict is Verdict.PASS  # munge is well


def test_a_machine_that_is_away_is_unknown_and_the_others_are_asked():
    cluster = lab()
    cluster.up = tuple(node for node in cluster.up if node != "gpu03")
    done = ran(cluster, tier=0)
    found = bad(done)
    assert found["nodes.state[head]"][0] == "fail"
    away = {ident for ident, (verdict, _) in found.items() if verdict == "unknown"}
    assert away
    assert all("[gpu03]" in ident for ident in away)


def test_a_job_that_fails_at_once_blocks_what_needs_its_nodes():
    job = {
        "job_id": 1,
        "nodes": "",
        "admin_comment": "",
        "job_state": ["FAILED"],
        "state_reason": "NonZeroExitCode",
    }
    cluster = lab(**{"show job 1 ": json.dumps({"jobs": [job], "errors": []})})
    first, second = ran(cluster, only=["job.multi", "job.gres"]).results
    assert (first.verdict, "NonZeroExitCode" in first.found) == (Verdict.FAIL, True)
    assert (second.verdict, second.blocked_by) == (Verdict.UNKNOWN, "job.multi[h100]")
    assert any("scancel --name=gpucluster-validate-" in command for _, command in cluster.asked)


def test_a_refused_submission_is_a_failure_in_sbatchs_words():
    done = ran(lab(sbatch=(1, "sbatch: error: invalid account")), only=["job.multi"])
    assert (done.results[0].verdict, "invalid account" in done.results[0].found) == (Verdict.FAIL, True)


def test_our_jobs_are_gone_however_it_ends():
    cluster = lab()

    def interrupt(_machine, command):
        if "srun" in command:
            raise KeyboardInterrupt

    cluster.before_run = interrupt
    with pytest.raises(KeyboardInterrupt):
        ran(cluster, only=["job.multi"])
    assert cluster.jobs == {1: "CANCELLED"}


def test_the_cloud_is_asked_when_it_can_be():
    burst = StandingCluster(builders.a_plan())
    burst_run = ran(burst, tier=0, ec2=lambda: Ec2(HEAD))
    assert bad(burst_run) == {}
    assert bad(ran(StandingCluster(builders.a_plan()), tier=0)) == {"cloud.orphans[cloud]": ("unknown", "")}
    stranger = {**HEAD, "InstanceId": "i-99999999", "Tags": []}
    done = ran(StandingCluster(builders.a_plan()), tier=0, ec2=lambda: Ec2(HEAD, stranger))
    assert bad(done) == {"cloud.orphans[cloud]": ("fail", "")}


def test_a_check_that_breaks_off_never_leaves_a_run_that_looks_whole():
    cluster = lab()
    ping, disk = select(expectations(cluster.plan), tier=0, only=["ctl.ping", "disk[head]"])
    broken = replace(disk, want=ping.want)
    with pytest.raises(GpuclusterError, match=r"no result of disk\[head\]: AttributeError"):
        ran(cluster, chosen=[ping, broken])
    assert cluster.closed


def test_the_users_own_pytest_has_no_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conftest.py").write_text("raise RuntimeError('mine')")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
    assert ran(lab(), only=["ctl.ping"]).ok


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        (("IDLE", "POWERED_DOWN"), "warn"),
        (("IDLE", "NOT_RESPONDING", "POWERING_UP"), "warn"),
        (("IDLE",), "unknown"),
    ],
)
def test_a_node_that_went_off_while_others_were_asked_is_no_fault(states, verdict):
    plan = builders.a_plan()
    cluster = StandingCluster(plan, up=["h200-2a-3"])
    nodes = json.loads(cluster.nodes("head", None))  # type: ignore[arg-type]
    gone = next(node for node in nodes["nodes"] if node["name"] == "h200-2a-3")
    gone["state"] = list(states)
    cluster.answers["scontrol show nodes"] = json.dumps(nodes)
    cluster.up = ()
    chosen = select(
        expectations(plan, up=["h200-2a-3"]), tier=0, only=["svc.active[h200-2a-3]", "disk[h200-2a-3]"]
    )
    done = ran(cluster, chosen=chosen)
    assert [r.verdict.value for r in done.results] == [verdict, verdict]


def test_whoever_watches_hears_of_each_question_before_and_after():
    heard = []
    done = ran(
        lab(), only=["ctl.ping", "disk[gpu01]"], told=lambda e, r: heard.append((e.id, r and r.verdict))
    )
    assert heard == [
        ("ctl.ping[head]", None),
        ("ctl.ping[head]", Verdict.PASS),
        ("disk[gpu01]", None),
        ("disk[gpu01]", Verdict.PASS),
    ]
    assert done.ok


def test_hostile_words_stay_words_in_every_report(tmp_path):
    cluster = lab()
    nodes = json.loads(cluster.nodes("head", None))  # type: ignore[arg-type]
    nodes["nodes"][0] |= {"state": ["DOWN"], "reason": HOSTILE}
    cluster.answers["scontrol show nodes"] = json.dumps(nodes)
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


def test_an_unknown_is_an_error_in_junit(tmp_path):
    junit = tmp_path / "junit.xml"
    ran(lab(**{"gpu01: df": "nonsense\nnonsense"}), only=["disk"], junit=junit)
    wrong = [case.get("name") for case in ET.parse(junit).iter("testcase") if case.find("error") is not None]  # noqa: S314
    assert wrong == ["disk[gpu01]"]


def test_nothing_asked_is_nothing_proven():
    empty = Run(name="lab", results=(), seconds=0)
    assert not empty.ok
    assert "no check was run" in headline(empty)


def test_the_json_has_its_fields():
    done = ran(lab(), only=["ctl.ping"]).as_json()
    assert done["counts"] == {"pass": 1, "warn": 0, "fail": 0, "unknown": 0}
    (row,) = done["results"]
    assert row.keys() == {
        "id", "check", "target", "machine", "tier", "title", "verdict", "found", "expected", "remedy", "seconds",
        "culprits", "blocked_by",
    }  # fmt: skip
    assert json.dumps(done)

"""`gpucluster validate` on a real cluster: green when it is healthy, and every sabotage found by its own check.

| sabotage | found by |
|---|---|
| munge stopped on a node | svc.active of the node |
| slurmd stopped on a node | svc.active of the node |
| munge frozen on the head | auth.rt of the head |
| slurmd frozen on a node | slurmd.ping of the node |
| another munge key on a node | auth.rt of the node |
| slurmctld frozen | ctl.ping |
| the elastic daemon stopped | svc.active of the head |
| the elastic daemon frozen | elastic.ping |
| slurm.conf edited on the head | cfg.same (of the head, and of nodes once slurmctld has sent it) |
| a bundle that Slurm refuses is offered | cfg.bundle |
| a partition DOWN | part.up |
| a partition's MaxTime changed by hand | part.up |
| a node drained, with a reason that is markup | nodes.state |
| /dev/nvidia7 gone | gpu.count of the node |
| the metadata guard gone on a node, and on the head | imds.guard of that machine |
| a node's clock wrong (its `date` says so: the kernel's is the host's too) | clock.sync of the node |
| a full /tmp (a tmpfs of 1 MiB) | disk of the node |
| /dev/shm read-only | fs.mount of the node |
| a node launched behind the daemon's back, a second head | cloud.orphans |
| topology.conf edited on the head | topo.place, and cfg.same |
| ConstrainDevices off | job.gres, and cfg.same |
| nodes' memory lowered in slurm.conf | nodes.hw, and cfg.same |
| the cloud refuses to end instances | burst.rt |
"""

import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster import USER, Cluster, gpucluster

from gpucluster import artifacts
from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]

HOSTILE = '<script>document.title="owned"</script><img src=//127.0.0.1:9/x onerror=alert(1)>'


def validated(cluster: Cluster, *options: str, code: int | None = None) -> dict[str, dict]:
    """The results by id, as JSON has them."""
    done = gpucluster("validate", cluster.name, "--output", "json", *options, check=False)
    answer = json.loads(done.stdout or "{}")
    assert code in (None, done.returncode), f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "results" in answer, done.stdout + done.stderr
    assert answer["ok"] == (done.returncode == 0)
    return {result["id"]: result for result in answer["results"]}


def cases_of(junit: Path) -> list[ET.Element]:
    return list(ET.parse(junit).iter("testcase"))  # noqa: S314


def of_verdict(results: dict[str, dict], *verdicts: str) -> set[str]:
    return {ident for ident, result in results.items() if result["verdict"] in verdicts}


def test_a_healthy_cluster_is_green_and_nothing_of_ours_is_left(standing, tmp_path):
    junit, html = tmp_path / "junit.xml", tmp_path / "report.html"
    results = validated(standing, "--junit", str(junit), "--html", str(html), code=0)
    assert of_verdict(results, "pass") == results.keys()
    assert {
        "job.multi[h200]",
        "gpu.count[h200/2]",
        "burst.rt[h200]",
        "cloud.orphans[cloud]",
    } <= results.keys()
    assert results["gpu.count[h200/1]"]["machine"].startswith("h200-1")
    cases = {case.get("name"): case for case in cases_of(junit)}
    assert cases.keys() == results.keys()
    assert all(case.find("failure") is None and case.find("error") is None for case in cases.values())
    assert standing.exec("head", "squeue", "--noheader") == ""
    assert standing.all_gone()
    seen = opened(html)
    assert seen["rows"] == len(results)
    assert seen["verdicts"] == {"pass": len(results)}
    assert seen["requests"] == []


@pytest.fixture(scope="module")
def held(standing: Cluster) -> Iterator[tuple[str, str]]:
    """Two nodes that stay up, because an ordinary user's job holds a part of them."""
    job = standing.sbatch("-N2", "--gres=gpu:1", "--cpus-per-gpu=1", "--mem=100M", script="sleep 1200")
    standing.wait("the job runs", lambda: standing.state(job) == "RUNNING")
    first, second = standing.exec("head", "scontrol", "show", "hostnames", standing.job(job)["nodes"]).split()
    yield first, second
    assert standing.state(job) == "RUNNING"  # whatever we did, his job was not disturbed
    standing.exec("head", "scancel", str(job), user=USER)


@dataclass(frozen=True)
class Sabotage:
    """Do it, undo it; `finds` is who must find it, `may` who may, `says` a word of the remedy."""

    name: str
    finds: frozenset[str]
    says: str
    do: Callable[[Cluster, str], None]
    undo: Callable[[Cluster, str], None]
    may: frozenset[str] = field(default=frozenset())
    found: str = ""


def shell(machine: str, text: str) -> Callable[[Cluster, str], None]:
    """A step on `head`, or on the first held node."""

    def step(cluster: Cluster, node: str) -> None:
        cluster.exec(node if machine == "node" else machine, "sh", "-ec", text.replace("NODE", node))

    return step


def sabotage(*row: str, **more: Any) -> Sabotage:
    """Name, who finds it, a word of the remedy, where, what to do, how to undo it."""
    name, finds, says, machine, do, undo = row
    return Sabotage(name, frozenset({finds}), says, shell(machine, do), shell(machine, undo), **more)


SABOTAGES = (
    sabotage("munge is stopped on a node", "svc.active[NODE]", "systemctl restart", "node", "systemctl stop munge", "systemctl start munge", found="munge inactive"),
    sabotage(
        "a node has another munge key",
        "auth.rt[NODE]",
        "munge.key",
        "node",
        "cp -a /etc/munge/munge.key /root/k; head -c 128 /dev/urandom >/etc/munge/munge.key; systemctl restart munge",
        "cp -a /root/k /etc/munge/munge.key; rm /root/k; systemctl restart munge",
    ),
    sabotage(
        "munge hangs on the head",
        "auth.rt[head]",
        "systemctl restart gpucluster-agent munge",
        "head",
        "systemctl kill --signal=STOP munge",
        "systemctl kill --signal=CONT munge",
        found="munged does not answer in time",
    ),
    sabotage(
        "slurmd hangs on a node",
        "slurmd.ping[NODE]",
        "systemctl restart slurmd",
        "node",
        "systemctl kill --signal=STOP slurmd",
        "systemctl kill --signal=CONT slurmd",
    ),
    sabotage(
        "slurmctld hangs",
        "ctl.ping[head]",
        "systemctl restart slurmctld",
        "head",
        "systemctl kill --signal=STOP slurmctld",
        "systemctl kill --signal=CONT slurmctld",
    ),
    sabotage(
        "the elastic daemon is stopped",
        "svc.active[head]",
        "systemctl",
        "head",
        "systemctl stop gpucluster-elastic",
        "systemctl start gpucluster-elastic",
        found="gpucluster-elastic inactive",
    ),
    sabotage(
        "the elastic daemon hangs",
        "elastic.ping[head]",
        "systemctl restart gpucluster-elastic",
        "head",
        "systemctl kill --signal=STOP gpucluster-elastic",
        "systemctl kill --signal=CONT gpucluster-elastic",
    ),
    sabotage(
        "slurm.conf is edited on the head",
        "cfg.same[head]",
        "gpucluster render",
        "head",
        "cp -L /etc/slurm/slurm.conf /root/c; echo '# by hand' >>/etc/slurm/slurm.conf",
        "cat /root/c >/etc/slurm/slurm.conf; rm /root/c; scontrol reconfigure",
        may=frozenset({"cfg.same[NODE]", "cfg.same[OTHER]"}),
        found="/etc/slurm/slurm.conf is another",
    ),
    sabotage("a partition is down", "part.up[head]", "scontrol update partition", "head", "scontrol update partition=gpu state=down", "scontrol update partition=gpu state=up", found="gpu is DOWN"),
    sabotage("a partition's limit is changed by hand", "part.up[head]", "scontrol reconfigure", "head", "scontrol update partition=gpu maxtime=60", "scontrol update partition=gpu maxtime=1440", found="60 min"),
    sabotage(
        "a GPU fell off",
        "gpu.count[NODE]",
        "replace it",
        "node",
        "umount /dev/nvidia7; rm /dev/nvidia7",
        "mknod -m 666 /dev/nvidia7 c 195 7",
        found="nvidia7 missing",
    ),
    sabotage("the metadata guard is gone on a node", "imds.guard[NODE]", "gpucluster-guard", "node", "nft delete table inet gpucluster", "nft -f /run/gpucluster-agent/guard.nft"),
    sabotage("the metadata guard is gone on the head", "imds.guard[head]", "gpucluster-guard", "head", "nft delete table inet gpucluster", "nft -f /run/gpucluster-agent/guard.nft"),
    sabotage(
        "a node's clock is wrong",
        "clock.sync[NODE]",
        "chronyc makestep",
        "node",
        r"""printf '#!/bin/sh\nexec /bin/date --date="+7 minutes" "$@"\n' >/usr/local/sbin/date; chmod 755 /usr/local/sbin/date""",
        "rm /usr/local/sbin/date",
        found="off by 4",
    ),
    sabotage(
        "/tmp is full",
        "disk[NODE]",
        "df -h",
        "node",
        "mount -t tmpfs -o size=1m,mode=1777 tmpfs /tmp; head -c 1000000 /dev/zero >/tmp/full",
        "umount /tmp",
        found="/tmp 9",
    ),
    sabotage(
        "/dev/shm is read-only",
        "fs.mount[NODE]",
        "remount,rw",
        "node",
        "mount -o remount,ro /dev/shm",
        "mount -o remount,rw /dev/shm",
        found="/dev/shm is read-only",
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", SABOTAGES, ids=lambda case: case.name)
def test_a_sabotage_is_found_by_its_own_check(standing, held, case):
    with done(standing, held, case):
        results = validated(standing, "--tier", "0", code=1)
    finds = named(case.finds, held)
    found_by_its_own_alone(results, finds, named(case.may, held))
    for ident in finds:
        assert case.says in results[ident]["remedy"]
        assert case.found in results[ident]["found"]


def test_a_drained_node_is_found_and_a_reason_that_is_markup_does_nothing_in_a_browser(
    standing, held, tmp_path
):
    html, junit = tmp_path / "report.html", tmp_path / "junit.xml"
    standing.exec("head", "scontrol", "update", f"nodename={held[1]}", "state=drain", f"reason={HOSTILE}")
    try:
        results = validated(standing, "--tier", "0", "--html", str(html), "--junit", str(junit), code=1)
    finally:
        standing.exec("head", "scontrol", "update", f"nodename={held[1]}", "state=resume")
    found_by_its_own_alone(results, {"nodes.state[head]"})
    assert HOSTILE[:40] in results["nodes.state[head]"]["found"]
    assert "sinfo -R" in results["nodes.state[head]"]["remedy"]
    failed = [case.get("name") for case in cases_of(junit) if case.find("failure") is not None]
    assert failed == ["nodes.state[head]"]
    seen = opened(html)
    assert seen["verdicts"] == {"fail": 1, "pass": len(results) - 1}
    assert seen["troubled"] == 1
    assert HOSTILE[:40] in seen["text"]
    assert "sinfo -R" in seen["text"]
    assert (seen["scripts"], seen["requests"], seen["dialogs"]) == (0, [], [])
    assert "owned" not in seen["title"]


@pytest.mark.parametrize("role", [names.ROLE_NODE, names.ROLE_HEAD])
def test_an_instance_that_nobody_owns_is_found(standing, held, role):
    ec2 = standing.ec2()
    templates = ec2.describe_launch_templates()["LaunchTemplates"]
    on_demand = next(
        t for t in templates if "h200-on-demand-" in t["LaunchTemplateName"]
    )  # a spot one tags a spot request
    template = on_demand["LaunchTemplateId"]
    subnet = ec2.describe_subnets(Filters=[{"Name": f"tag:{names.TAG_CLUSTER}", "Values": [standing.name]}])[
        "Subnets"
    ][0]["SubnetId"]
    tags = [{"Key": names.TAG_CLUSTER, "Value": standing.name}, {"Key": names.TAG_ROLE, "Value": role}]
    launched = ec2.run_instances(
        LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
        NetworkInterfaces=[
            {"DeviceIndex": 0, "SubnetId": subnet}
        ],  # beside a template's list nothing else names it (T31)
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"][0]["InstanceId"]
    try:  # few questions: the daemon ends it after its orphan's grace, here 10 s
        results = validated(
            standing, "--tier", "0", "--only", "svc.active,ctl.ping,nodes.state,cloud.orphans", code=1
        )
    finally:
        ec2.terminate_instances(InstanceIds=[launched])
    found_by_its_own_alone(results, {"cloud.orphans[cloud]"})
    assert launched in results["cloud.orphans[cloud]"]["found"]
    assert "terminate-instances" in results["cloud.orphans[cloud]"]["remedy"]


def test_a_bundle_that_the_head_refuses_is_found(standing, held):
    s3 = standing.client("s3")
    bucket = next(
        b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith(f"{standing.name}-")
    )
    good = s3.get_object(Bucket=bucket, Key=names.BUNDLE_KEY)["Body"].read()
    files = artifacts.unpack(good)
    bad = [
        artifacts.Artifact(a.path, b"NoSuchKey=1\n" + a.content) if a.path == "slurm/slurm.conf" else a
        for a in files
    ]
    s3.put_object(Bucket=bucket, Key=names.BUNDLE_KEY, Body=artifacts.pack(bad))
    try:
        results = validated(standing, "--tier", "0", code=1)
    finally:
        s3.put_object(Bucket=bucket, Key=names.BUNDLE_KEY, Body=good)
    found_by_its_own_alone(results, {"cfg.bundle[head]"})
    assert "gpucluster-agent" in results["cfg.bundle[head]"]["remedy"]


FILES = (("Switch", "topology"), ("Constrain", "cgroup"), ("Memory", "slurm"))
LIVE = "cfg.same,nodes.hw,job.multi,topo.place,job.gres"


@pytest.mark.parametrize(
    ("edit", "finder", "says"),
    [
        (
            "s/SwitchName=us-east-1a/SwitchName=X/; s/SwitchName=us-east-1b/SwitchName=us-east-1a/; s/SwitchName=X/SwitchName=us-east-1b/",
            "topo.place[h200]",
            "topology.conf",
        ),
        ("s/ConstrainDevices=yes/ConstrainDevices=no/", "job.gres[h200]", "ConstrainDevices"),
        ("s/RealMemory=1992294/RealMemory=1992290/", "nodes.hw[head]", "scontrol reconfigure"),
    ],
    ids=[
        "topology.conf has its leaves swapped",
        "jobs are not kept from others' GPUs",
        "nodes have a little less memory",
    ],
)
def test_a_file_of_slurm_that_is_edited_is_found_in_the_file_and_in_what_it_does(
    standing, held, edit, finder, says
):
    file = f"/etc/slurm/{next(name for word, name in FILES if word in edit)}.conf"
    do = f"cp -L {file} /root/c; sed '{edit}' /root/c >{file}; scontrol reconfigure"
    undo = f"cat /root/c >{file}; rm /root/c; scontrol reconfigure"
    with resting(standing, "head"):
        standing.exec("head", "sh", "-ec", do)
        try:
            results = validated(standing, "--only", LIVE, code=1)
        finally:
            standing.exec("head", "sh", "-ec", undo)
    assert of_verdict(results, "fail") >= {finder, "cfg.same[head]"}
    assert {i for i in of_verdict(results, "fail", "unknown") if not i.startswith("cfg.same[")} == {finder}
    assert says in results[finder]["remedy"]
    standing.wait(
        "nodes have the file again",
        lambda: not of_verdict(validated(standing, "--only", "cfg.same", "--tier", "0"), "fail"),
    )


def test_instances_that_do_not_end_are_found(standing, held):
    standing.control().next_error("TerminateInstances", "UnauthorizedOperation", times=100_000)
    try:
        results = validated(standing, "--only", "ctl.ping,job.multi,burst.rt", code=1)
    finally:
        standing.control().clear()
    found_by_its_own_alone(results, {"burst.rt[h200]"})
    assert "gpucluster-elastic" in results["burst.rt[h200]"]["remedy"]


def test_an_interrupted_run_leaves_no_job_of_ours_and_all_of_others(standing, held):
    def ours() -> str:
        jobs = standing.exec("head", "squeue", "--noheader", "--states=all", "--format=%T %j").splitlines()
        return "\n".join(
            j for j in jobs if "gpucluster-validate" in j and j.startswith(("R", "PEND", "CONF"))
        )

    argv = [sys.executable, "-m", "gpucluster.cli.start", "validate", standing.name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        standing.wait("our job is there", lambda: ours() != "")
        run.terminate()
        _, err = run.communicate(timeout=60)
    assert (run.returncode, "Traceback" in err) == (143, False), err
    assert ours() == ""
    assert standing.exec("head", "squeue", "--noheader", f"--user={USER}", "--format=%T") == "RUNNING\n"


def test_what_is_asked_for_and_is_not_there_is_an_error_of_the_user(standing):
    for options in (
        ("nowhere",),
        (standing.name, "--only", "gpu.cuont"),
        (standing.name, "--backend", "ssh"),
    ):
        done = gpucluster("validate", *options, check=False)
        assert (done.returncode, "next: " in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


def test_pytest_alone_runs_the_suite(standing, tmp_path):
    plan = standing.state_dir() / "plan.json"
    enter = f"{sys.executable} -m gpucluster.cli.start sandbox exec {standing.name} {{machine}} --"
    argv = [
        "-p",
        "gpucluster.validate.suite.plugin",
        "--pyargs",
        "gpucluster.validate.suite",
        "--plan",
        str(plan),
        "--enter",
        enter,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "no:cacheprovider", "-v", *argv, "--only", "ctl.ping,disk", "--tier", "0"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "ping[head] PASSED" in done.stdout, done.stdout + done.stderr
    assert "::disk[head] PASSED" in done.stdout
    assert done.returncode == 0


def found_by_its_own_alone(results, finds, may=()):
    """`finds` fail, nothing but `may` beside them; what is unknown says that one of them is in its way."""
    failed = of_verdict(results, "fail")
    assert finds <= failed <= finds | set(may), {i: results[i]["found"] for i in failed ^ finds}
    for ident in of_verdict(results, "unknown"):
        assert results[ident]["blocked_by"] in failed, (ident, results[ident]["found"])
        assert not re.search(r"blocked by (?!\w)", results[ident]["found"])


def named(idents, held):
    return {ident.replace("NODE", held[0]).replace("OTHER", held[1]) for ident in idents}


@contextmanager
def done(cluster, held, case):
    """Sabotaged; afterwards undone, and green again. Agents rest meanwhile: a look of theirs would mend it first."""
    with resting(cluster, "head", held[0]), ExitStack() as stack:
        stack.callback(case.undo, cluster, held[0])
        case.do(cluster, held[0])
        yield
    end = time.monotonic() + 40
    checks = sorted({ident.partition("[")[0] for ident in case.finds | case.may})
    while of_verdict(results := validated(cluster, "--tier", "0", "--only", ",".join(checks)), "fail"):
        assert time.monotonic() < end, {i: results[i]["found"] for i in of_verdict(results, "fail")}


@contextmanager
def resting(cluster, *machines):
    """The machines' agents see nothing meanwhile."""
    with ExitStack() as stack:
        for machine in machines:
            stack.callback(agent, cluster, machine, "CONT")
            agent(cluster, machine, "STOP")
        yield


def agent(cluster, machine, number):
    cluster.exec(machine, "systemctl", "kill", f"--signal={number}", "gpucluster-agent")


def opened(page_file):
    """What a real browser makes of the page."""
    from playwright.sync_api import sync_playwright

    requests: list[str] = []
    dialogs: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        page.goto(page_file.as_uri())
        rows = page.locator("#checks tr:has(td)")
        verdicts = rows.locator("td.verdict").all_inner_texts()
        seen = {
            "rows": rows.count(),
            "verdicts": {word: verdicts.count(word) for word in set(verdicts)},
            "troubled": page.locator("#troubled tr:has(td)").count(),
            "scripts": page.locator("script, img").count(),
            "title": page.title(),
            "text": page.locator("body").inner_text(),
            "requests": [url for url in requests if url != page_file.as_uri()],
            "dialogs": dialogs,
        }
        browser.close()
    return seen

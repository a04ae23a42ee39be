"""`gpucluster validate` on a real cluster: all checks pass when it is healthy, and each planted fault fails its own check.

While a fault is in place, `validate` runs over the transports of the last column: `sandbox` is the whole suite over the sandbox's own
transport, where nothing else may fail; `SSM` is the fault's own check over Systems Manager, as on AWS, at the same time. Faults that
need jobs or the cloud alone are asked over one transport.

| fault | failing check | transports |
|---|---|---|
| munge stopped on a node, masked on another | svc.active of the node | sandbox, SSM |
| munge frozen on the head | auth.rt of the head | sandbox, SSM |
| slurmd frozen on a node | slurmd.ping of the node | sandbox, SSM |
| another munge key on a node | auth.rt of the node | sandbox, SSM |
| slurmctld frozen | ctl.ping | sandbox, SSM |
| the elastic daemon stopped | svc.active of the head | sandbox, SSM |
| the elastic daemon frozen | elastic.ping | sandbox, SSM |
| launches of the whole cluster stopped | elastic.scales | sandbox, SSM |
| slurm.conf edited on the head | cfg.same (of the head, and of nodes after slurmctld has sent it) | sandbox, SSM |
| a partition DOWN | part.up | sandbox, SSM |
| a partition's MaxTime changed by hand | part.up | sandbox, SSM |
| a node drained, with a reason that is markup | nodes.state | sandbox, SSM |
| a drain with a reason that a person wrote in gpucluster's name | nodes.state | sandbox, SSM |
| /dev/nvidia7 gone, a ninth GPU device | gpu.count of the node | sandbox, SSM |
| a GPU with ECC errors, a dead fabric | node.health of the node | sandbox, SSM |
| the metadata guard gone on a node, and on the head | imds.guard of that machine | sandbox, SSM |
| a rule that lets jobs reach file servers, before the guard's | imds.guard of the node | sandbox, SSM |
| a program of the package changed, whose installed copy is good | files.ours of the node | sandbox, SSM |
| a node's clock wrong (by its `date`, because the kernel's clock is also the host's) | clock.sync of the node | sandbox, SSM |
| a full /tmp (a tmpfs of 1 MiB) | disk of the node | sandbox, SSM |
| /dev/shm read-only | fs.mount of the node | sandbox, SSM |
| a bundle that Slurm refuses is offered | cfg.bundle | sandbox |
| a node that the daemon did not launch, a second head | cloud.orphans | sandbox |
| an instance that ended while the daemon hung | cloud.journal | sandbox |
| topology.conf edited on the head | topo.place, and cfg.same | sandbox |
| ConstrainDevices off | job.gres, and cfg.same | sandbox |
| nodes' memory lowered in slurm.conf | nodes.hw, and cfg.same | sandbox |
| /tmp no longer each job's own | job.tmp, and cfg.same | sandbox |
| jobs with the limits of who submits | job.limits, and cfg.same | sandbox |
| the cloud refuses to end instances | burst.rt | sandbox |

A node without the cluster's tag or its role, hop limit 2 and a group open to the world are in `tests/unit/validate/test_cloud.py`, over the
sandbox's EC2 alone. /home unmounted is in `test_research.py`. The remedies of the faults in FAULTS and ROUNDS are run, and
the cluster is healthy afterwards. A row whose remedy is no command has its reason.

| fault | failing check | transports |
|---|---|---|
| munge.key readable by all, a Prolog that all may write, a secret folder open | files.modes of the machine | sandbox, SSM |
| ResumeProgram not executable, a spool that slurmctld's user cannot write | files.modes of the head | sandbox, SSM |
| the spool mounted read-only | hook.run | sandbox, SSM |
| /dev/shm of 64 MiB, slurmd with a small memlock and fsize | node.limits of the node | sandbox, SSM |
| debug flags set by hand | ctl.conf | sandbox, SSM |
| no partition is the default one | part.up | sandbox, SSM |
| another address for a peer in /etc/hosts | net.names of the node | sandbox, SSM |
| the host name of another node | net.names of the node, and not node.strays | sandbox, SSM |
| a process of a user without a job, the folder of an ended job | node.strays of the node | sandbox, SSM |
| the file of ended jobs removed | acct.log | sandbox, SSM |
| a reservation in gpucluster's name | ctl.resv | sandbox, SSM |
| a second user with uid 0, a rule of sudo by hand | users.root of the machine | sandbox, SSM |
| a script named sbatch before Slurm's in the path | path.slurm of the node | sandbox, SSM |
| an export that no plan has | fs.exports of the head | sandbox, SSM |
| a setuid shell, which tier 1 looks for | files.setuid of the node | sandbox |
| a hook changed, a Prolog, a drop-in or logrotate's file missing or changed, a drop-in by hand, a folder of the environment that all may write | files.ours of the machine | sandbox, SSM |
"""

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from cluster import USER, Cluster, gpucluster
from validation import asked_by_ssm, each, of_verdict, only_these_fail, paused, run_remedy, validated

from gpucluster import artifacts
from gpucluster.checks import remedies
from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

AGENT, DAEMON = "gpucluster-agent", "gpucluster-elastic"
HOSTILE = '<script>document.title="owned"</script><img src=//127.0.0.1:9/x onerror=alert(1)>'


def cases_of(junit: Path) -> list[ET.Element]:
    return list(ET.parse(junit).iter("testcase"))  # noqa: S314


def test_healthy_cluster_passes_and_no_job_or_instance_is_left(shared_cluster, tmp_path):
    junit, html = tmp_path / "junit.xml", tmp_path / "report.html"
    results = validated(shared_cluster, "--junit", str(junit), "--html", str(html), code=0)
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
    assert shared_cluster.exec("head", "squeue", "--noheader") == ""
    assert shared_cluster.all_gone()
    seen = opened(html)
    assert seen["rows"] == len(results)
    assert seen["verdicts"] == {"pass": len(results)}
    assert seen["requests"] == []


@pytest.fixture(scope="module")
def nodes_in_use(shared_cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Two nodes that stay up, because a job of an ordinary user occupies a part of them."""
    job = shared_cluster.sbatch("-N2", "--gres=gpu:1", "--cpus-per-gpu=1", "--mem=100M", script="sleep 7200")
    shared_cluster.wait("the job runs", lambda: shared_cluster.state(job) == "RUNNING")
    shared_cluster.wait(
        "each Prolog has ended, so that no fault of munge hides its end",
        lambda: f"{job}.batch" in shared_cluster.exec("head", "squeue", "--steps", "-h", "-o", "%i").split(),
    )
    first, second = shared_cluster.exec(
        "head", "scontrol", "show", "hostnames", shared_cluster.job(job)["nodes"]
    ).split()
    # a job runs before the agent's last step, which a test would stop
    shared_cluster.wait("the agents have ended their boots", lambda: is_healthy(shared_cluster))
    yield first, second
    assert shared_cluster.state(job) == "RUNNING"  # no test disturbed the user's job
    shared_cluster.exec("head", "scancel", str(job), user=USER)


@dataclass(frozen=True)
class Fault:
    """A planted fault: `finds` is the check that must fail, `may` those that may fail, `remedy` is a part of its remedy.

    The commands of the remedy end the fault. Where they cannot, `undo` does, and `because` says why.
    """

    name: str
    finds: str
    remedy: str
    machine: str  # head, or NODE or OTHER: the nodes in use
    do: str
    undo: str = ""
    because: str = ""
    may: frozenset[str] = field(default=frozenset())
    found: str = ""

    def __post_init__(self) -> None:
        assert bool(self.undo) == bool(self.because), self.name


REPLACED = "the machine is replaced"
ADDED = (
    Fault("a second user has the uid of root", "users.root[head]", "sed -i '/^toor:/d' /etc/passwd", "head", "echo 'toor:x:0:0::/root:/bin/bash' >>/etc/passwd", found="user toor has the uid 0"),
    Fault(
        "a rule of sudo is written by hand", "users.root[NODE]", "rm /etc/sudoers.d/helper", "NODE",
        "mkdir -p /etc/sudoers.d; echo 'researcher ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/helper", found="/etc/sudoers.d/helper is of no package",
    ),
    Fault(
        "a script is before Slurm's sbatch in the path", "path.slurm[NODE]", "rm /usr/local/bin/sbatch", "NODE",
        r"""printf '#!/bin/sh\nexec /usr/bin/sbatch "$@"\n' >/usr/local/bin/sbatch; chmod 755 /usr/local/bin/sbatch""", found="is /usr/local/bin/sbatch, before",
    ),
    Fault(
        "a folder is exported by hand", "fs.exports[head]", "exportfs -u '*:/etc'", "head",
        r"mkdir -p /var/lib/nfs; printf '/etc\t*(rw,sync,no_root_squash)\n' >/var/lib/nfs/etab",
        undo="rm /var/lib/nfs/etab", because="a rehearsal on AWS has no NFS server", found="/etc is exported to *, which no plan exports",
    ),
)  # fmt: skip
PACKAGED = (
    "f=$(ls /opt/gpucluster/venv/lib/python3*/site-packages/gpucluster/agent/units/opt/gpucluster/bin/prolog)"
)


FAULTS = (  # those of one row are in place at one time
    ADDED,
    (
        Fault("munge is stopped on a node", "svc.active[NODE]", "systemctl restart", "NODE", "systemctl stop munge", found="munge inactive"),
        Fault(
            "munge is masked on a node", "svc.active[OTHER]", "systemctl unmask munge", "OTHER", "systemctl mask --now munge",
            may=frozenset({"nodes.state[head]"}), found="munge inactive (masked)",
        ),
    ),
    (
        Fault(
            "a node has another munge key", "auth.rt[NODE]", "systemctl restart gpucluster-agent munge", "NODE",
            "head -c 128 /dev/urandom >/etc/munge/munge.key; systemctl restart munge",
            may=frozenset({"nodes.state[head]"}),  # slurmctld may ping the node meanwhile, and marks it as not responding
        ),
    ),
    (
        Fault(
            "munge hangs on the head", "auth.rt[head]", "systemctl restart munge", "head",
            "systemctl kill --signal=STOP munge", found="munged does not answer in time",
        ),
    ),
    (
        Fault(
            "slurmd hangs on a node", "slurmd.ping[NODE]", "systemctl restart slurmd", "NODE",
            "systemctl kill --kill-whom=main --signal=STOP slurmd",  # with its slurmstepd stopped, too, a new slurmd does not start in time
        ),
    ),
    (
        Fault("slurmctld hangs", "ctl.ping[head]", "systemctl restart slurmctld", "head", "systemctl kill --signal=STOP slurmctld"),
    ),
    (
        Fault(
            "the elastic daemon is stopped", "svc.active[head]", "systemctl restart gpucluster-elastic", "head",
            "systemctl stop gpucluster-elastic", found="gpucluster-elastic inactive",
        ),
    ),
    (
        Fault("the elastic daemon hangs", "elastic.ping[head]", "systemctl restart gpucluster-elastic", "head", "systemctl kill --signal=STOP gpucluster-elastic"),
    ),
    (
        Fault(
            "slurm.conf is edited on the head", "cfg.same[head]", "systemctl restart gpucluster-agent", "head",
            "echo '# by hand' >>/etc/slurm/slurm.conf",
            may=frozenset({"cfg.same[NODE]", "cfg.same[OTHER]"}), found="/etc/slurm/slurm.conf is another",
        ),
        Fault(
            "a device file of a ninth GPU", "gpu.count[NODE]", "rm /dev/nvidia8", "NODE", "mknod -m 666 /dev/nvidia8 c 195 8",
            found="nvidia8 not in gres.conf", may=frozenset({"node.health[NODE]"}),
        ),
        Fault("the metadata guard is gone on a node", "imds.guard[NODE]", "gpucluster-guard", "NODE", "nft delete table inet gpucluster"),
        Fault(
            "a port of the fabric is down", "node.health[NODE]", "health_check --report", "NODE",
            "echo '1: DOWN' >/etc/sandbox-fabric/fabric0/ports/1/state; rm -r /etc/sandbox-fabric/fabric[1-9]*",
            undo="for n in $(seq 0 31); do mkdir -p /etc/sandbox-fabric/fabric$n/ports/1; echo '4: ACTIVE' >/etc/sandbox-fabric/fabric$n/ports/1/state; done",
            because=REPLACED, found="fabric.ports: 0 active ports",
        ),
        Fault(
            "a node's clock is wrong", "clock.sync[NODE]", "chronyc makestep", "NODE",
            r"""printf '#!/bin/sh\nexec /bin/date --date="+7 minutes" "$@"\n' >/usr/local/sbin/date; chmod 755 /usr/local/sbin/date""",
            undo="rm /usr/local/sbin/date", because="the clock is right, as it is the host's: only its `date` is wrong",
            found="off by 4",
        ),
    ),
    (
        Fault(
            "launches are stopped", "elastic.scales[head]", "gpucluster scaling start", "head",
            "gpucluster scaling stop --because audit", found="launches are stopped, by root: audit",
        ),
        Fault("a partition's limit is changed by hand", "part.up[head]", "scontrol reconfigure", "head", "scontrol update partition=gpu maxtime=60", found="maxtime 01:00:00"),
        Fault(
            "a drain has a forged reason", "nodes.state[head]", "scontrol update nodename=NODE state=undrain", "head",
            "scontrol update nodename=NODE state=drain reason='gpucluster: [nobody] by hand'", found="written by root, not by gpucluster",
        ),
        Fault(
            "a GPU has uncorrectable ECC errors", "node.health[NODE]", "health_check --report", "NODE",
            """echo '{"ecc": {"3": 2}}' >/run/sandbox-gpu-faults.json""",
            undo="rm /run/sandbox-gpu-faults.json", because=REPLACED,
            found="gpu.ecc: GPU 3 has 2 uncorrectable ECC errors",
        ),
        Fault(
            "/tmp is full", "disk[NODE]", "df -h", "NODE",
            "mount -t tmpfs -o size=1m,mode=1777 tmpfs /tmp; head -c 1000000 /dev/zero >/tmp/full",
            undo="umount /tmp", because="a person chooses the files that go", found="/tmp 9",
        ),
        Fault("the metadata guard is gone on the head", "imds.guard[head]", "gpucluster-guard", "head", "nft delete table inet gpucluster"),
    ),
    (
        Fault("a partition is down", "part.up[head]", "scontrol update partition", "head", "scontrol update partition=gpu state=down", found="gpu is DOWN"),
        Fault(
            "a GPU is missing", "gpu.count[NODE]", "replace it", "NODE", "umount /dev/nvidia7; rm /dev/nvidia7",
            undo="mknod -m 666 /dev/nvidia7 c 195 7", because=REPLACED,
            found="nvidia7 missing", may=frozenset({"node.health[NODE]"}),
        ),
        Fault(
            "jobs reach file servers", "imds.guard[NODE]", "gpucluster-guard", "NODE",
            "nft insert rule inet gpucluster output tcp dport 2049 accept", found="added: tcp dport 2049 accept",
        ),
        Fault(
            "a program of the package is changed", "files.ours[NODE]", "replace the machine", "NODE", f"{PACKAGED}; echo 'exit 1' >>\"$f\"",
            undo=f"{PACKAGED}; sed -i '$d' \"$f\"", because=REPLACED,
            found="the package's gpucluster/agent/units/opt/gpucluster/bin/prolog is another",
        ),
        Fault("a node's agent hangs", "svc.agent[OTHER]", "systemctl restart gpucluster-agent", "OTHER", "systemctl kill --signal=STOP gpucluster-agent", found="T (stopped)"),
        Fault("/dev/shm is read-only", "fs.mount[NODE]", "remount,rw", "NODE", "mount -o remount,ro /dev/shm", found="/dev/shm is read-only"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("cases", FAULTS, ids=lambda cases: ", ".join(case.name for case in cases))
def test_each_fault_is_found_by_its_own_check_whose_remedy_ends_it(shared_cluster, nodes_in_use, cases):
    """The agents are paused, because they would repair some of it."""

    def told(text: str) -> str:
        return text.replace("NODE", nodes_in_use[0]).replace("OTHER", nodes_in_use[1])

    finds = {told(case.finds) for case in cases}
    with paused(shared_cluster, AGENT, "head", nodes_in_use[0]):
        for case in cases:
            shared_cluster.exec(told(case.machine), "sh", "-ec", told(case.do))
        with asked_by_ssm(shared_cluster, finds) as by_ssm:
            results = validated(shared_cluster, "--tier", "0", code=1)
            same = by_ssm()
        each(
            partial(shared_cluster.exec, told(case.machine), "sh", "-ec", case.undo)
            if case.undo
            else partial(run_remedy, shared_cluster, results[told(case.finds)]["remedy"])
            for case in cases
        )
    shared_cluster.wait("all checks pass again", lambda: is_healthy(shared_cluster))
    only_these_fail(results, finds, {told(ident) for case in cases for ident in case.may})
    assert of_verdict(same, "fail") == finds
    for case in cases:
        for one in (results, same):
            assert told(case.remedy) in one[told(case.finds)]["remedy"]
            assert case.found in one[told(case.finds)]["found"]


@dataclass(frozen=True)
class Sabotage:
    """A fault with a remedy that is commands: `finds` is the only check that fails for it, `found` a part of what it says."""

    finds: str
    machine: str  # head, NODE or OTHER
    do: str
    found: str


SMALL_MEMLOCK = "/etc/systemd/system/slurmd.service.d/memlock.conf"
ROUNDS = (  # the faults of a round are in place at one time
    (
        Sabotage("files.modes[head]", "head", "chmod 0644 /opt/gpucluster/bin/resume", "/opt/gpucluster/bin/resume is 0644 of root, not 0755 of root"),
        Sabotage("files.modes[head]", "head", "chmod 0500 /var/spool/gpucluster/new", "/var/spool/gpucluster/new is 0500 of slurm, not 0700 of slurm"),
        Sabotage("files.modes[NODE]", "NODE", "chmod 0644 /etc/munge/munge.key", "/etc/munge/munge.key is 0644 of munge, not 0400 of munge"),
        Sabotage("files.modes[OTHER]", "OTHER", "chown nobody /opt/gpucluster/bin/prolog", "/opt/gpucluster/bin/prolog is 0755 of nobody, not 0755 of root"),
        Sabotage("ctl.conf[head]", "head", "scontrol setdebugflags +gres; scontrol setdebug debug", "debugflags is Gres,Power, not Power"),
        Sabotage("node.limits[NODE]", "NODE", "mount -o remount,size=64m /dev/shm", "/dev/shm has 64 MiB"),
        Sabotage(
            "node.limits[OTHER]", "OTHER",
            rf"printf '[Service]\nLimitMEMLOCK=64K\nLimitFSIZE=1G\n' >{SMALL_MEMLOCK}; systemctl daemon-reload; systemctl restart slurmd",
            "file size is limited to 1048576 KiB, locked memory is limited to 64 KiB",
        ),
        Sabotage(
            "files.ours[OTHER]", "OTHER", r"printf '[Service]\nLimitNPROC=64\n' >/etc/systemd/system/slurmd.service.d/zz.conf",
            f"{SMALL_MEMLOCK} is not ours, /etc/systemd/system/slurmd.service.d/zz.conf is not ours",
        ),
    ),
    (
        Sabotage("hook.run[head]", "head", "mount -t tmpfs -o ro,mode=0700,uid=slurm tmpfs /var/spool/gpucluster/tmp", "Read-only file system"),
        Sabotage("part.up[head]", "head", "scontrol update partition=gpu default=no", "gpu is not the default"),
        Sabotage("net.names[NODE]", "NODE", "sed -i '1i 10.9.9.9 store OTHER' /etc/hosts", "OTHER is 10.9.9.9 outside the block of gpucluster"),
        Sabotage("net.names[NODE]", "NODE", "hostname OTHER", "the host name is OTHER, not NODE"),
        Sabotage(
            "node.strays[OTHER]", "OTHER",
            "useradd runaway; setsid --fork runuser -u runaway -- sleep 3600 </dev/null >/dev/null 2>&1; "
            "mkdir -p /var/lib/gpucluster-tmp/OTHER/99/.99/_tmp",
            "/var/lib/gpucluster-tmp/OTHER/99 of an ended job",
        ),
        Sabotage("acct.log[head]", "head", "rm /var/log/slurm/jobs.log", "/var/log/slurm/jobs.log is missing"),
        Sabotage(
            "ctl.resv[head]", "head",
            "scontrol create reservation reservationname=gpucluster-mine starttime=now+2hours duration=60 users=root nodes=ALL flags=ignore_jobs",
            "gpucluster-mine is not in the plan",
        ),
        Sabotage(
            "files.ours[head]", "head", "echo '# by hand' >>/opt/gpucluster/bin/suspend; rm /etc/logrotate.d/gpucluster",
            "/opt/gpucluster/bin/suspend is another, /etc/logrotate.d/gpucluster is missing",
        ),
        Sabotage(
            "files.ours[OTHER]", "OTHER", "chmod o+w /opt/gpucluster/venv/bin",
            "/opt/gpucluster/venv/bin may be written by every user",
        ),
        Sabotage(
            "files.ours[NODE]", "NODE",
            "rm /opt/gpucluster/bin/prolog; echo '[Service]' >>/etc/systemd/system/slurmd.service.d/gpucluster.conf",
            "/etc/systemd/system/slurmd.service.d/gpucluster.conf is another, /opt/gpucluster/bin/prolog is missing",
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    "sabotages", ROUNDS, ids=["modes, limits, debug flags", "hook, default, names, strays, log, programs"]
)
def test_sabotage_is_found_by_one_check_whose_remedy_heals_it(shared_cluster, nodes_in_use, sabotages):
    """The agents are paused: they would repair some of it. Nothing but what rests on a fault is unknown."""
    machines = {"head": "head", "NODE": nodes_in_use[0], "OTHER": nodes_in_use[1]}
    with paused(shared_cluster, AGENT, "head", *nodes_in_use):
        for one in sabotages:
            shared_cluster.exec(machines[one.machine], "sh", "-ec", one.do.replace("OTHER", nodes_in_use[1]))
        finds = named({one.finds for one in sabotages}, nodes_in_use)
        with asked_by_ssm(shared_cluster, finds) as by_ssm:
            results = validated(shared_cluster, "--tier", "0", code=1)
            same = by_ssm()
        remedies = [results[ident]["remedy"] for ident in of_verdict(results, "fail")]
        each(partial(run_remedy, shared_cluster, remedy) for remedy in remedies)
        shared_cluster.wait("all checks pass again", lambda: is_healthy(shared_cluster))
    shared_cluster.exec(nodes_in_use[1], "rm", "-f", SMALL_MEMLOCK)
    only_these_fail(results, finds)
    assert of_verdict(same, "fail") == finds
    for one in sabotages:
        ident, found = (
            text.replace("NODE", nodes_in_use[0]).replace("OTHER", nodes_in_use[1])
            for text in (one.finds, one.found)
        )
        assert found in results[ident]["found"]
        assert found in same[ident]["found"]


def test_drained_node_is_found_and_markup_in_its_reason_is_harmless_in_a_browser(
    shared_cluster, nodes_in_use, tmp_path
):
    html, junit = tmp_path / "report.html", tmp_path / "junit.xml"
    shared_cluster.exec(
        "head", "scontrol", "update", f"nodename={nodes_in_use[1]}", "state=drain", f"reason={HOSTILE}"
    )
    try:
        with asked_by_ssm(shared_cluster, {"nodes.state[head]"}) as by_ssm:
            results = validated(
                shared_cluster, "--tier", "0", "--html", str(html), "--junit", str(junit), code=1
            )
            same = by_ssm()
    finally:
        shared_cluster.exec("head", "scontrol", "update", f"nodename={nodes_in_use[1]}", "state=resume")
    only_these_fail(results, {"nodes.state[head]"})
    assert HOSTILE[:40] in same["nodes.state[head]"]["found"]
    assert HOSTILE[:40] in results["nodes.state[head]"]["found"]
    assert "sinfo -R" in results["nodes.state[head]"]["remedy"]
    failed = [case.get("name") for case in cases_of(junit) if case.find("failure") is not None]
    assert failed == ["nodes.state[head]"]
    seen = opened(html)
    assert seen["verdicts"] == {"fail": 1, "pass": len(results) - 1}
    assert seen["unhealthy"] == 1
    assert HOSTILE[:40] in seen["text"]
    assert "sinfo -R" in seen["text"]
    assert (seen["scripts"], seen["requests"], seen["dialogs"]) == (0, [], [])
    assert "owned" not in seen["title"]


@pytest.mark.parametrize("role", [names.ROLE_NODE, names.ROLE_HEAD])
def test_orphan_instance_is_found(shared_cluster, nodes_in_use, role):
    ec2 = shared_cluster.ec2()
    templates = ec2.describe_launch_templates()["LaunchTemplates"]
    on_demand = next(
        t for t in templates if "h200-on-demand-" in t["LaunchTemplateName"]
    )  # a spot template tags a spot request
    template = on_demand["LaunchTemplateId"]
    subnet = ec2.describe_subnets(
        Filters=[{"Name": f"tag:{names.TAG_CLUSTER}", "Values": [shared_cluster.name]}]
    )["Subnets"][0]["SubnetId"]
    tags = [{"Key": names.TAG_CLUSTER, "Value": shared_cluster.name}, {"Key": names.TAG_ROLE, "Value": role}]
    launched = ec2.run_instances(
        LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
        NetworkInterfaces=[
            {"DeviceIndex": 0, "SubnetId": subnet}
        ],  # the subnet belongs to the list of interfaces (T31)
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"][0]["InstanceId"]
    try:
        with paused(shared_cluster, DAEMON, "head"):  # it would terminate the orphan after 10 s
            results = validated(
                shared_cluster,
                "--tier",
                "0",
                "--only",
                "svc.active,ctl.ping,nodes.state,cloud.orphans",
                code=1,
            )
    finally:
        ec2.terminate_instances(InstanceIds=[launched])
    only_these_fail(results, {"cloud.orphans[cloud]"})
    assert launched in results["cloud.orphans[cloud]"]["found"]
    assert "terminate-instances" in results["cloud.orphans[cloud]"]["remedy"]


def test_instance_that_ended_while_the_daemon_hung_is_found_in_the_journal_and_its_remedy_ends_it(
    shared_cluster, nodes_in_use
):
    """Only the journal had the node: nothing said so until the daemon ran again."""
    job = shared_cluster.sbatch("-N1", "--gres=gpu:8", "--no-requeue", script="sleep 1200")
    shared_cluster.wait("the job runs", lambda: shared_cluster.state(job) == "RUNNING")
    node = shared_cluster.job(job)["nodes"]
    instance = next(one["id"] for one in shared_cluster.instances() if one["node"] == node)
    ec2 = shared_cluster.ec2()
    with paused(shared_cluster, DAEMON, "head"):
        ec2.terminate_instances(InstanceIds=[instance])
        ec2.get_waiter("instance_terminated").wait(
            InstanceIds=[instance], WaiterConfig={"Delay": 1, "MaxAttempts": 120}
        )
        results = validated(shared_cluster, "--tier", "0", "--only", "cloud.journal", code=1)
        run_remedy(shared_cluster, results["cloud.journal[cloud]"]["remedy"])
    shared_cluster.exec("head", "scancel", str(job), check=False)  # it may have ended with its node
    shared_cluster.wait("all checks pass again", lambda: is_healthy(shared_cluster))
    assert results["cloud.journal[cloud]"]["found"] == f"{node} ({instance}) is terminated"


def test_setuid_shell_is_found_and_its_remedy_ends_it(shared_cluster, nodes_in_use):
    """Programs of packages with setuid are on every machine: sudo, su, mount."""
    shell, ident = "/usr/local/bin/helper", f"files.setuid[{nodes_in_use[0]}]"
    only = ("--only", ident)
    validated(shared_cluster, *only, code=0)
    shared_cluster.exec(nodes_in_use[0], "sh", "-ec", f"cp /bin/bash {shell}; chmod 4755 {shell}")
    found = validated(shared_cluster, *only, code=1)[ident]
    assert found["found"] == f"{shell} has setuid"
    run_remedy(shared_cluster, found["remedy"])
    validated(shared_cluster, *only, code=0)
    shared_cluster.exec(nodes_in_use[0], "rm", shell)


def test_refused_bundle_is_found(shared_cluster, nodes_in_use):
    s3 = shared_cluster.client("s3")
    bucket = next(
        b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith(f"{shared_cluster.name}-")
    )
    good = s3.get_object(Bucket=bucket, Key=names.BUNDLE_KEY)["Body"].read()
    files = artifacts.unpack(good)
    bad = [
        artifacts.Artifact(a.path, b"NoSuchKey=1\n" + a.content) if a.path == "slurm/slurm.conf" else a
        for a in files
    ]
    s3.put_object(Bucket=bucket, Key=names.BUNDLE_KEY, Body=artifacts.pack(bad))
    try:
        results = validated(shared_cluster, "--tier", "0", code=1)
    finally:
        s3.put_object(Bucket=bucket, Key=names.BUNDLE_KEY, Body=good)
    only_these_fail(results, {"cfg.bundle[head]"})
    assert "gpucluster-agent" in results["cfg.bundle[head]"]["remedy"]


def test_foreign_key_in_the_secret_is_found_and_restored(shared_cluster, nodes_in_use):
    """Munge still works everywhere: its own remedy would now install the foreign key, so it is not named."""
    client = shared_cluster.client("secretsmanager")
    (arn,) = (
        one["ARN"]
        for one in client.list_secrets()["SecretList"]
        if one["Name"].startswith(f"{shared_cluster.name}-munge")
    )
    key = client.get_secret_value(SecretId=arn)["SecretBinary"]
    client.put_secret_value(SecretId=arn, SecretBinary=b"x" * 128)
    results = validated(shared_cluster, "--tier", "0", "--only", "auth.secret,auth.rt", code=1)
    only_these_fail(results, {"auth.secret[head]"})
    assert {one["blocked_by"] for name, one in results.items() if name.startswith("auth.rt")} == {
        "auth.secret[head]"
    }
    before = main_pid(shared_cluster, "head", AGENT)
    shared_cluster.exec("head", "sh", "-ec", remedies.restart(AGENT), check=False)
    assert main_pid(shared_cluster, "head", AGENT) == before, "no remedy starts the agent over a foreign key"
    run_remedy(shared_cluster, results["auth.secret[head]"]["remedy"])
    assert client.get_secret_value(SecretId=arn)["SecretBinary"] == key
    validated(shared_cluster, "--tier", "0", "--only", "auth.secret,auth.rt", code=0)


BROKEN = (  # unit, the machine, what breaks its start, what mends that
    ("slurmctld", "head", "echo NoSuchKey=1 >>/etc/slurm/slurm.conf", "sed -i /NoSuchKey/d /etc/slurm/slurm.conf"),
    ("slurmd", "NODE", "sed -i 's/:6817/:6816/' /run/gpucluster-agent/slurmd.env", "sed -i 's/:6816/:6817/' /run/gpucluster-agent/slurmd.env"),
    ("ssh", "NODE", "echo NoSuchKey yes >/etc/ssh/sshd_config.d/00-broken.conf", "rm /etc/ssh/sshd_config.d/00-broken.conf"),
)  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN, ids=[row[0] for row in BROKEN])
def test_no_remedy_restarts_a_daemon_that_could_not_start_again(shared_cluster, nodes_in_use, broken):
    unit, machine, do, undo = (word.replace("NODE", nodes_in_use[0]) for word in broken)
    typed = partial(shared_cluster.exec, machine, "sh", "-ec", remedies.restart(unit), check=False)
    before = main_pid(shared_cluster, machine, unit)
    with paused(shared_cluster, AGENT, machine):
        shared_cluster.exec(machine, "sh", "-ec", do)
        try:
            typed()
            assert main_pid(shared_cluster, machine, unit) == before
        finally:
            shared_cluster.exec(machine, "sh", "-ec", undo)
        typed()
        assert main_pid(shared_cluster, machine, unit) not in ("0", before)
    shared_cluster.wait("all checks pass again", lambda: is_healthy(shared_cluster))


LIVE = "cfg.same,nodes.hw,job.multi,topo.place,job.gres,job.tmp,job.limits"
EDITS: dict[str, tuple[dict[str, str], dict[str, str]]] = {  # file -> edit; check that finds its effect -> part of the remedy
    "leaves are swapped, jobs open the GPUs of others, nodes have less memory": (
        {
            "topology": "s/SwitchName=h200-1a/SwitchName=X/; s/SwitchName=h200-1b/SwitchName=h200-1a/; s/SwitchName=X/SwitchName=h200-1b/",
            "cgroup": "s/ConstrainDevices=yes/ConstrainDevices=no/",
            "slurm": "s/RealMemory=1992294/RealMemory=1992290/",
        },
        {"topo.place[h200]": "topology.conf", "job.gres[h200]": "ConstrainDevices", "nodes.hw[head]": "scontrol reconfigure"},
    ),
    "jobs share /tmp, and have the limits of who submits": (
        {  # who submits has a small limit
            "job_container": "s/Dirs=.tmp,.var.tmp,.dev.shm/Dirs=\\/var\\/tmp,\\/dev\\/shm/",
            "slurm": "s/PropagateResourceLimitsExcept=.*/PropagateResourceLimits=MEMLOCK/",
        },
        {"job.tmp[h200]": "job_container.conf", "job.limits[h200]": "PropagateResourceLimits"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edits", "finders"), EDITS.values(), ids=EDITS)
def test_edited_slurm_files_are_found_and_their_effects_and_the_remedy_of_the_files_ends_both(
    shared_cluster, nodes_in_use, edits, finders
):
    small = "/etc/security/limits.d/small.conf"
    do = f"echo '* - memlock 64' >{small}; " + "; ".join(
        f"cp -L /etc/slurm/{name}.conf /root/c; sed '{edit}' /root/c >/etc/slurm/{name}.conf; "
        f"! cmp -s /root/c /etc/slurm/{name}.conf; rm /root/c"
        for name, edit in edits.items()
    )
    with paused(shared_cluster, AGENT, "head"):
        shared_cluster.exec("head", "sh", "-ec", f"{do}; scontrol reconfigure")
        results = validated(shared_cluster, "--only", LIVE, code=1)
        run_remedy(shared_cluster, results["cfg.same[head]"]["remedy"])
    bad = {i for i in of_verdict(results, "fail", "unknown") if not i.startswith("cfg.same[")}
    assert (bad, results["cfg.same[head]"]["verdict"]) == (finders.keys(), "fail")
    assert all(remedy in results[finder]["remedy"] for finder, remedy in finders.items())
    shared_cluster.wait(
        "nodes have the files again",
        lambda: (
            not of_verdict(validated(shared_cluster, "--only", "cfg.same,nodes.hw", "--tier", "0"), "fail")
        ),
    )


def test_instances_that_do_not_terminate_are_found(shared_cluster, nodes_in_use):
    shared_cluster.control().next_error("TerminateInstances", "UnauthorizedOperation", times=100_000)
    try:
        results = validated(shared_cluster, "--only", "ctl.ping,job.multi,burst.rt", code=1)
    finally:
        shared_cluster.control().clear()
    only_these_fail(results, {"burst.rt[h200]"})
    assert "gpucluster-elastic" in results["burst.rt[h200]"]["remedy"]


def test_interrupted_run_cancels_its_own_job_only(shared_cluster, nodes_in_use):
    def own_jobs() -> str:
        jobs = shared_cluster.exec(
            "head", "squeue", "--noheader", "--states=all", "--format=%T %j"
        ).splitlines()
        return "\n".join(
            j for j in jobs if "gpucluster-validate" in j and j.startswith(("R", "PEND", "CONF"))
        )

    argv = [sys.executable, "-m", "gpucluster.cli", "validate", shared_cluster.name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        shared_cluster.wait("our job is there", lambda: own_jobs() != "")
        run.terminate()
        _, err = run.communicate(timeout=900)
    assert (run.returncode, "Traceback" in err) == (143, False), err
    assert own_jobs() == ""
    assert shared_cluster.exec("head", "squeue", "--noheader", f"--user={USER}", "--format=%T") == "RUNNING\n"


def test_unknown_name_is_a_user_error(shared_cluster):
    for options in (
        ("nowhere",),
        (shared_cluster.name, "--only", "gpu.cuont"),
        (shared_cluster.name, "--backend", "ssh"),
    ):
        done = gpucluster("validate", *options, check=False)
        assert (done.returncode, "next: " in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


def test_pytest_alone_runs_the_suite(shared_cluster, tmp_path):
    plan = shared_cluster.state_dir() / "plan.json"
    enter = f"{sys.executable} -m gpucluster.cli sandbox exec {shared_cluster.name} {{machine}} --"
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
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert "ping[head] PASSED" in done.stdout, done.stdout + done.stderr
    assert "::disk[head] PASSED" in done.stdout
    assert done.returncode == 0


def is_healthy(cluster: Cluster) -> bool:
    return not of_verdict(validated(cluster, "--tier", "0"), "fail", "unknown")


def main_pid(cluster: Cluster, machine: str, unit: str) -> str:
    return cluster.exec(machine, "systemctl", "show", unit, "--property=MainPID", "--value").strip()


def named(idents, nodes_in_use):
    return {ident.replace("NODE", nodes_in_use[0]).replace("OTHER", nodes_in_use[1]) for ident in idents}


def opened(page_file):
    """Return what a real browser shows and requests."""
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
            "unhealthy": page.locator("#unhealthy tr:has(td)").count(),
            "scripts": page.locator("script, img").count(),
            "title": page.title(),
            "text": page.locator("body").inner_text(),
            "requests": [url for url in requests if url != page_file.as_uri()],
            "dialogs": dialogs,
        }
        browser.close()
    return seen

"""Runs of a real cluster in which one thing goes wrong: each says what, and what must hold is the same for all.

A run submits its jobs, breaks something, and returns the jobs that must complete. `judge` then holds the cluster to:
every such job completed, never two living instances for one slot, nothing drained, nothing left in the cloud.
"""

import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import Cluster, gpucluster

from gpucluster.elastic.act import Failpoint

AGENT = "gpucluster-agent"
TIMELINE = ("/opt/gpucluster/venv/bin/python", "-m", "gpucluster.elastic.timeline")
WHY = (*TIMELINE[:-1], "gpucluster.elastic.why")
DAEMON, DROP_IN = "gpucluster-elastic", "/run/systemd/system/gpucluster-elastic.service.d/fault.conf"
TRIPPED = "/var/lib/gpucluster/elastic/tripped"  # the failpoint that killed the daemon last
SHORT, LONG = "sleep 3", "sleep 12"


class Stage:
    """One cluster during one run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.before = self.launched()

    def submit(self, nodes: int = 2, script: str = SHORT, *options: str) -> int:
        return self.cluster.sbatch(f"-N{nodes}", "--gres=gpu:8", *options, script=script)

    def launched(self) -> set[str]:
        """Instances that ever were, by the cloud's own list."""
        return {i["id"] for i in self.cluster.everything() if i["role"] == "node"}

    def new(self) -> list[str]:
        """Those of this run, in no order that means anything."""
        return sorted(self.launched() - self.before)

    def spot(self) -> list[str]:
        """Living spot machines of this run: no other gets a notice."""
        living = {i["id"] for i in self.cluster.instances() if i["market"] == "spot"}
        return [i for i in self.new() if i in living]

    def wait(self, what: str, seen: Callable[[], bool], within: float = 120, poll: float = 0.1) -> None:
        self.cluster.wait(what, seen, within=within, poll=poll)

    def until(self, job: int, moment: str) -> None:
        """Until the journal says it of the job."""
        self.wait(f"the journal says {moment} of {job}", lambda: moment in self.cluster.told(job), poll=0.05)

    def until_launched(self, count: int = 1) -> None:
        self.wait(f"{count} instances are there", lambda: len(self.new()) >= count, poll=0.05)

    def until_running(self, job: int) -> str:
        """The job's batch host, once it runs there for real."""
        self.wait(f"{job} runs", lambda: self.cluster.state(job) == "RUNNING")
        return str(self.cluster.job(job)["batch_host"])

    def head(self, *argv: str, check: bool = True) -> str:
        return self.cluster.exec("head", *argv, check=check)

    def kill(self, unit: str, machine: str = "head", signal: str = "KILL") -> None:
        """The program alone: a job's own processes stand below slurmd's unit."""
        self.cluster.exec(machine, "systemctl", "kill", "--kill-whom=main", "-s", signal, unit)

    @contextmanager
    def without_daemon(self) -> Iterator[None]:
        """It is stopped, and the agent that would start it again."""
        for unit in (AGENT, DAEMON):
            self.head("systemctl", "stop", unit)
        try:
            yield
        finally:
            for unit in (DAEMON, AGENT):
                self.head("systemctl", "start", unit)

    def end(self, instance: str) -> None:
        """The cloud takes an instance."""
        self.cluster.ec2().terminate_instances(InstanceIds=[instance])

    def notice(self, instance: str, after_s: float = 40.0, silent: Sequence[str] = ()) -> None:
        """The cloud says that it takes an instance back, and then does."""
        self.cluster.control().interrupt(instance, after_s, silent=silent)

    def nodes_of(self, job: int) -> list[str]:
        return self.head("scontrol", "show", "hostnames", self.cluster.job(job)["nodes"]).split()

    def saved(self, job: int) -> None:
        """slurmctld saves its jobs at most each 5 s: one that it has not saved yet is Slurm's own to lose."""
        submitted = self.cluster.job(job)["submit_time"]["number"]
        stamp = ("stat", "-c", "%Y", "/var/spool/slurmctld/job_state")
        self.wait("slurmctld has saved the job", lambda: int(self.head(*stamp)) > submitted)


Do = Callable[[Stage], Sequence[int]]


@dataclass(frozen=True)
class Run:
    """One way in which things go wrong."""

    name: str
    kind: str
    do: Do
    quick: bool = False  # also in `make test`
    exact: bool = False  # one launch for each slot: nothing that it needed failed

    @property
    def minutes(self) -> int:
        """About how long it takes: Slurm misses a node only after SlurmdTimeout."""
        return (
            5 if any(word in self.name for word in ("for good", "from mid job on", "resume timeout")) else 1
        )


RUNS: list[Run] = []


def run(kind: str, *, quick: bool = False, exact: bool = False) -> Callable[[Do], Do]:
    """Register a run under its function's name."""

    def note(do: Do) -> Do:
        RUNS.append(Run(do.__name__.replace("_", " "), kind, do, quick, exact))
        return do

    return note


def rows(
    kind: str, names: Sequence[str], quick: Sequence[str] = (), *, exact: bool = False
) -> Callable[[Callable[[Stage, str], Sequence[int]]], None]:
    """Register a run for each of `names`."""

    def note(do: Callable[[Stage, str], Sequence[int]]) -> None:
        for name in names:
            title = f"{do.__name__.replace('_', ' ')} {name}"
            RUNS.append(Run(title, kind, lambda s, name=name: do(s, name), name in quick, exact))

    return note


# --- what must hold ---------------------------------------------------------------------------------------
@dataclass
class Verdict:
    """What a run came to."""

    run: str
    kind: str
    seconds: float
    nodes: int
    launches: int
    leaked: int = 0
    lost: int = 0
    stuck: int = 0
    words: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.leaked or self.lost or self.stuck or self.words)

    def check(self) -> None:
        """Fail a test with what went wrong."""
        assert self.good, "\n".join(self.words)


def judge(cluster: Cluster, what: Run) -> Verdict:
    """Do the run, and say what came of it; the cluster is quiet afterwards or the verdict says that it is not."""
    began = time.monotonic()
    stage = Stage(cluster)
    words: list[str] = []
    jobs: Sequence[int] = ()
    try:
        jobs = what.do(stage)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the cluster is judged and the next run begins
        words.append(f"the run itself: {str(error)[:2000]}")
    lost = [words_of for job in jobs if (words_of := _lost(stage, job))]
    stuck, leaked = _quiet(stage)
    words.extend(_doubles(stage, jobs))
    slots, new = {n for job in jobs for n in _slots(stage, job)}, stage.new()
    if what.exact and len(new) != len(slots):
        words.append(f"{len(new)} launches for {len(slots)} slots")
    return Verdict(
        run=what.name,
        kind=what.kind,
        seconds=round(time.monotonic() - began, 1),
        nodes=len(slots),
        launches=len(new),
        leaked=len(leaked),
        lost=len(lost),
        stuck=len(stuck),
        words=[*words, *lost, *stuck, *leaked],
    )


def _lost(stage: Stage, job: int) -> str:
    """Why the job did not complete, and what the cluster was doing; empty: it did."""
    try:
        stage.wait(f"{job} is done", lambda: stage.cluster.state(job) == "COMPLETED", within=300, poll=0.3)
    except AssertionError as error:
        return f"lost: job {job}: {str(error)[:4000]}"
    return ""


def _quiet(stage: Stage) -> tuple[list[str], list[str]]:
    """Leave no job and no refusal; then nodes that do not come to rest, and instances that do not end."""
    cluster = stage.cluster
    cluster.control().clear()
    cluster.exec("head", "scancel", "--user", "researcher", check=False)
    story = ""
    try:
        cluster.wait("no job holds a node", lambda: not _busy(stage), within=60)
        cluster.power_down()
        cluster.wait("every node is gone and no slot is blocked", cluster.all_gone, within=150)
    except AssertionError as error:
        story = str(error)[:4000]
    odd = [
        f"stuck: {name} {'+'.join(n['state'])} {n['reason']} {story}"
        for name, n in cluster.nodes().items()
        if not set(n["state"]) <= {"IDLE", "CLOUD", "POWERED_DOWN", "NOT_RESPONDING"}
    ]
    return odd, [f"leaked: {i['id']} {story}" for i in cluster.instances()]


def _busy(stage: Stage) -> bool:
    return bool(stage.head("squeue", "-h", "-t", "R,CF,CG", "-o", "%i", check=False).split())


def _moments(stage: Stage, job: int) -> list[dict[str, Any]]:
    return json.loads(stage.head(*TIMELINE, str(job), "--json"))


def _slots(stage: Stage, job: int) -> set[str]:
    return {m["slot"] for m in _moments(stage, job) if m["what"] == "launched"}


def _doubles(stage: Stage, jobs: Sequence[int]) -> Iterator[str]:
    """A second life of a slot may need a second instance, but only when the first is gone."""
    for job in jobs:
        living: dict[str, str] = {}
        for m in _moments(stage, job):
            if m["what"] == "launched":
                if living.get(m["slot"], m["instance"]) != m["instance"]:
                    yield f"two instances for {m['slot']}: {living[m['slot']]} and {m['instance']}"
                living[m["slot"]] = m["instance"]
            elif m["what"] == "gone":
                living.pop(m["slot"], None)


# --- processes --------------------------------------------------------------------------------------------
NOTICED = tuple(p for p in Failpoint if any(word in p for word in ("signal", "requeue", "forget")))
BURST = tuple(p for p in Failpoint if p not in NOTICED)


@rows("daemon killed", BURST, quick=("after-intent", "before-result", "after-end"), exact=True)
def the_daemon_dies_at(s: Stage, point: str) -> Sequence[int]:
    with dying(s, point):
        job = s.submit()
        if "end" in point:
            s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
            s.cluster.power_down()
    return (job,)


@rows("daemon killed", NOTICED)
def a_notice_comes_and_the_daemon_dies_at(s: Stage, point: str) -> Sequence[int]:
    with dying(s, point):
        job = s.submit(script=LONG)
        s.until_running(job)
        time.sleep(3)  # a job that has not begun is sent back without a word
        s.notice(s.spot()[0])
    return (job,)


@contextmanager
def dying(s: Stage, point: str) -> Iterator[None]:
    """A daemon that kills itself once at this point; what is in the block leads there."""
    s.head("mkdir", "-p", DROP_IN.rpartition("/")[0])
    text = f"[Service]\nEnvironment=GPUCLUSTER_TRIP={point}\n"
    s.cluster.exec("head", "sh", "-c", f"cat > {DROP_IN}", stdin=text)
    try:
        s.head("systemctl", "daemon-reload")
        s.head("rm", "-f", TRIPPED)
        s.head("systemctl", "restart", DAEMON)
        yield
        s.wait("it died there", lambda: s.head("cat", TRIPPED, check=False) == point)
    finally:
        s.head("rm", "-f", DROP_IN)
        s.head("systemctl", "daemon-reload")
        s.head("systemctl", "restart", DAEMON)


@rows("daemon killed", ("placed", "launched", "registered"), exact=True)
def the_daemon_is_killed_when_the_job_is(s: Stage, moment: str) -> Sequence[int]:
    job = s.submit()
    s.until(job, moment)
    s.kill(DAEMON)
    return (job,)


@run("daemon stopped", quick=True, exact=True)
def the_daemon_is_stopped_for_twenty_seconds_in_mid_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until(job, "placed")
    s.kill(DAEMON, signal="STOP")
    time.sleep(20)
    s.kill(DAEMON, signal="CONT")
    return (job,)


@run("daemon away")
def the_daemon_is_away_while_a_job_ends_and_another_begins(s: Stage) -> Sequence[int]:
    first = s.submit(script="sleep 1")
    s.until_running(first)
    with s.without_daemon():
        second = s.submit(3)
        time.sleep(8)
    return (first, second)


@rows("slurmctld killed", ("launched", "registered"), quick=("launched",))
def slurmctld_is_killed_when_the_job_is(s: Stage, moment: str) -> Sequence[int]:
    job = s.submit()
    s.until(job, moment)
    s.saved(job)
    s.kill("slurmctld")
    return (job,)


@run("slurmctld restarted")
def slurmctld_is_restarted_in_mid_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.saved(job)
    s.head("systemctl", "restart", "slurmctld")
    return (job,)


@run("slurmctld away")
def slurmctld_is_away_and_why_answers_from_the_daemons_record(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.saved(job)
    s.head("systemctl", "stop", "slurmctld")
    try:
        said = s.head(*WHY, str(job), check=False)
    finally:
        s.head("systemctl", "start", "slurmctld")
    assert said.startswith(f"job {job} starts") or "slurmctld does not answer" in said, said
    return (job,)


@run("reconfigure", quick=True)
def slurm_is_reconfigured_in_mid_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    for _ in range(4):
        s.head("scontrol", "reconfigure")
        time.sleep(0.7)
    return (job,)


@rows("node's process killed", ("slurmd", "gpucluster-agent", "munge"))
def in_mid_job_a_node_loses_its(s: Stage, unit: str) -> Sequence[int]:
    job = s.submit(script=LONG)
    node = s.until_running(job)
    time.sleep(3)  # a slurmd that dies during the Prolog has Slurm wait for BatchStartTimeout: 210 s
    s.kill(unit, machine=node)
    return (job,)


@rows("node's process killed", ("gpucluster-agent", "munge"))
def in_mid_boot_a_node_loses_its(s: Stage, unit: str) -> Sequence[int]:
    job = s.submit()
    s.until(job, "booted")
    instance = s.new()[0]
    s.cluster.exec(instance, "systemctl", "kill", "-s", "KILL", unit, check=False)
    return (job,)


@run("head's process killed")
def the_heads_munged_is_killed_in_mid_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.kill("munge")
    return (job,)


# --- the cloud refuses, forgets, takes ------------------------------------------------------------------------
@rows(
    "the cloud errs",
    ("RequestLimitExceeded", "InternalError", "ServiceUnavailable", "InsufficientInstanceCapacity", "VcpuLimitExceeded"),
    quick=("RequestLimitExceeded",),
)  # fmt: skip
def three_launches_in_a_row_meet(s: Stage, code: str) -> Sequence[int]:
    s.cluster.control().next_error("RunInstances", code, times=3)
    return (s.submit(),)


@rows("the cloud errs", ("RequestLimitExceeded", "InternalError"))
def ten_readings_in_a_row_meet(s: Stage, code: str) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.cluster.control().next_error("DescribeInstances", code, times=10)
    return (job,)


@rows("the cloud errs", ("RequestLimitExceeded", "InternalError"))
def five_endings_in_a_row_meet(s: Stage, code: str) -> Sequence[int]:
    job = s.submit()
    s.until_running(job)
    s.cluster.control().next_error("TerminateInstances", code, times=5)
    return (job,)


@rows(
    "a reply is lost",
    ("RunInstances", "TerminateInstances", "DescribeInstances"),
    quick=("RunInstances",),
    exact=True,
)
def the_answer_is_lost_of(s: Stage, action: str) -> Sequence[int]:
    s.cluster.control().lose_reply(action, times=2)
    return (s.submit(),)


@rows("no capacity", ("machine", "market", "zone"))
def there_is_none_of_a(s: Stage, what: str) -> Sequence[int]:
    none = {"machine": "p5en.48xlarge", "market": "spot", "zone": "us-east-1a"}
    s.cluster.capacity(0, **{what: none[what]})
    return (s.submit(),)


@run("no capacity")
def there_is_none_at_all_for_a_while_and_three_jobs_wait(s: Stage) -> Sequence[int]:
    s.cluster.capacity(0)
    jobs = [s.submit(n) for n in (1, 2, 3)]
    time.sleep(12)
    s.cluster.capacity(None)
    return jobs


@run("no capacity")
def there_is_room_for_the_smaller_of_two_gangs(s: Stage) -> Sequence[int]:
    s.cluster.capacity(2)
    jobs = [s.submit(4), s.submit(2)]
    s.wait("the smaller one is done", lambda: s.cluster.state(jobs[1]) == "COMPLETED", within=150)
    s.cluster.capacity(None)
    return jobs


@rows("an instance ends", ("launched", "booted", "registered", "running"))
def the_cloud_takes_an_instance_when_the_job_is(s: Stage, moment: str) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.until(job, moment)
    s.end(s.new()[0])
    if moment == "launched":  # its replacement comes inside the same allocation
        s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
        assert s.cluster.job(job)["restart_cnt"] == 0, "a failed boot cost a requeue"
    return (job,)


@run("an instance ends")
def the_cloud_takes_all_instances_at_once(s: Stage) -> Sequence[int]:
    job = s.submit(3, script=LONG)
    s.until_running(job)
    for instance in s.new():
        s.end(instance)
    return (job,)


@run("an instance ends")
def a_node_powers_itself_off(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.cluster.exec(s.until_running(job), "systemctl", "poweroff", "--no-block", check=False)
    return (job,)


# --- notices --------------------------------------------------------------------------------------------------
@rows("spot notice", ("by metadata and queue", "by metadata alone", "by the queue alone", "by neither"))
def a_spot_notice_in_mid_job_comes(s: Stage, how: str) -> Sequence[int]:
    silent = {
        "by metadata alone": ("queue",),
        "by the queue alone": ("metadata",),
        "by neither": ("metadata", "queue"),
    }
    job = s.submit(script="sleep 30")
    s.until_running(job)
    s.notice(s.spot()[0], silent=silent.get(how, ()))
    return (job,)


@run("spot notice")
def a_storm_of_notices_takes_three_nodes_at_once(s: Stage) -> Sequence[int]:
    job = s.submit(3, script="sleep 30")
    s.until_running(job)
    for instance in s.spot():
        s.notice(instance)
    return (job,)


@run("spot notice")
def a_spot_notice_takes_the_machine_of_one_task_of_an_array(s: Stage) -> Sequence[int]:
    """A notice for one task once sent the whole array back."""
    array = str(s.submit(1, "sleep 30", "--array=1-3"))
    running = ("squeue", "-h", "-j", array, "-t", "R", "-o", "%A")  # each task's own id
    s.wait("its tasks run", lambda: len(s.head(*running, check=False).split()) == 3)
    tasks = [int(task) for task in s.head(*running).split()]
    s.notice(s.spot()[0])
    for task in tasks:
        s.wait(f"{task} is done", lambda task=task: s.cluster.state(task) == "COMPLETED")
    assert sorted(s.cluster.job(task)["restart_cnt"] for task in tasks) == [0, 0, 1]
    return tasks


@run("spot notice")
def a_node_is_told_to_go_while_it_boots(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched(2)
    s.notice(s.spot()[0], after_s=20.0)
    return (job,)


@run("rebalance")
def a_rebalance_hint_comes_in_mid_job_and_the_job_is_left_alone(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.until_running(job)
    s.cluster.control().rebalance(s.new()[0])
    s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
    assert s.cluster.job(job)["restart_cnt"] == 0, "a hint cost a job"
    return (job,)


@run("maintenance")
def the_cloud_schedules_maintenance_in_mid_job(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.until_running(job)
    s.cluster.control().maintain(s.new()[0], code="system-reboot", after_s=3600.0)
    return (job,)


@rows("hung metadata", ("boot", "mid job"))
def the_metadata_service_hangs_at(s: Stage, when: str) -> Sequence[int]:
    job = s.submit(script=LONG)
    if when == "boot":
        s.until_launched(2)
    else:
        s.until_running(job)
    s.cluster.control().hang_metadata(*s.new())
    time.sleep(12)
    s.cluster.control().hang_metadata()
    return (job,)


# --- the network, the disk, the clock ---------------------------------------------------------------------------
CUT = """table inet cut {
  chain in { type filter hook input priority -300; policy drop; iif lo accept; }
  chain out { type filter hook output priority -300; policy drop; oif lo accept; }
}"""


@rows("network cut", ("short", "for good"), quick=("short",))
def a_node_loses_its_network(s: Stage, how: str) -> Sequence[int]:
    """From within: a link that is only set down is brought up again by the machine's own networkd."""
    job = s.submit(script=LONG)
    node = s.until_running(job)
    s.cluster.exec(node, "sh", "-c", "cat > /run/cut.nft", stdin=CUT)
    back = "; sleep 6; nft delete table inet cut" if how == "short" else ""
    s.cluster.exec(node, "systemd-run", "--no-block", "sh", "-c", f"nft -f /run/cut.nft{back}")
    if how == "for good":
        s.wait("Slurm misses it", lambda: s.cluster.job(job)["restart_cnt"] == 1, within=330)  # SlurmdTimeout
    return (job,)


@run("disk full", quick=True)
def the_journals_disk_is_full_for_a_while(s: Stage) -> Sequence[int]:
    """A small file system under the journal, filled in mid burst: nothing is launched until there is room."""
    folder = "/var/lib/gpucluster/elastic"
    small = f"mount -t tmpfs -o size=3m,mode=0700 fault {folder} && cp -a /run/kept/. {folder}/ && chown slurm:slurm {folder}"
    with s.without_daemon():
        s.head("sh", "-c", f"cp -a {folder} /run/kept && {small}")
    try:
        s.head("sh", "-c", f"dd if=/dev/zero of={folder}/fill bs=4k 2>/dev/null || true")
        job = s.submit()
        time.sleep(10)
        assert not s.new(), "launched without a record"
        s.head("rm", f"{folder}/fill")
        s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED", within=180)
        s.cluster.power_down()
        s.wait("its nodes are gone", s.cluster.all_gone)
    finally:
        s.head("rm", "-f", f"{folder}/fill")
        with s.without_daemon():
            s.head(
                "sh",
                "-c",
                f"rm -rf /run/kept && cp -a {folder} /run/kept && umount {folder} && cp -a /run/kept/. {folder}/ && rm -rf /run/kept",
            )
    return (job,)


# --- people ---------------------------------------------------------------------------------------------------
@rows("cancelled", ("placed", "launched", "registered"))
def the_job_is_cancelled_when_it_is(s: Stage, moment: str) -> Sequence[int]:
    gone, stays = s.submit(), s.submit(1)
    s.until(gone, moment)
    s.head("scancel", str(gone))
    return (stays,)


@run("cancelled")
def a_person_requeues_the_job_while_its_nodes_boot(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.head("scontrol", "requeue", str(job))
    return (job,)


@run("drained")
def a_person_drains_a_node_in_mid_job(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    node = s.until_running(job)
    s.head("scontrol", "update", f"nodename={node}", "state=drain", "reason=a person's")
    s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
    time.sleep(12)  # longer than the pool's idle time: it stays
    assert "DRAIN" in s.cluster.nodes()[node]["state"], "a person's drain was lifted"
    s.head("scontrol", "update", f"nodename={node}", "state=undrain")
    return (job,)


@run("drained")
def slurm_itself_drains_a_node(s: Stage) -> Sequence[int]:
    """It stood drained and paid for without end: no job could use it, and nothing powered it down."""
    first = s.submit(1, "sleep 1", "-w", "h200-1a-1")
    s.wait(f"{first} is done", lambda: s.cluster.state(first) == "COMPLETED")
    broken = "rm /opt/gpucluster/bin/prolog; printf '#!/bin/sh\nexit 1\n' > /opt/gpucluster/bin/prolog"
    s.cluster.exec("h200-1a-1", "sh", "-c", f"{broken}; chmod 755 /opt/gpucluster/bin/prolog")
    job = s.submit(1, "sleep 1", "-w", "h200-1a-1")
    s.wait("slurmctld drained it", lambda: s.cluster.nodes()["h200-1a-1"]["reason"] == "Prolog error")
    return (first, job)


@run("stray")
def an_instance_that_nobody_asked_for_appears_in_mid_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    bindings = json.loads(s.head("cat", "/var/lib/gpucluster/bundle/bindings.json"))
    template = bindings["templates"]["h200-spot-p5en.48xlarge"]
    tags = [
        {"Key": "gpucluster:cluster", "Value": s.cluster.name},
        {"Key": "gpucluster:role", "Value": "node"},
    ]
    s.cluster.ec2().run_instances(
        MinCount=1,
        MaxCount=1,
        LaunchTemplate={"LaunchTemplateId": template["id"], "Version": str(template["version"])},
        InstanceType="p5en.48xlarge",
        InstanceMarketOptions={"MarketType": "spot"},  # the template names none, and tags a spot request
        NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": bindings["subnets"]["us-east-1a"]}],  # T31
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return (job,)


# --- clocks and boots -------------------------------------------------------------------------------------------
FAKETIME, SKEW_S = "/usr/local/lib/libfaketime.so.1", 400  # beyond munge's 300 s


@run("clock skew", quick=True)
def the_heads_clock_is_wrong_for_a_while(s: Stage) -> Sequence[int]:
    """munged believes libfaketime, a stand-in for a clock that is off: every credential of a node is too old."""
    job = s.submit()
    _skew(s, "head", "munge")
    s.until_launched(2)
    time.sleep(10)
    _unskew(s, "head", "munge")
    return (job,)


@run("clock skew")
def a_nodes_clock_is_wrong_from_mid_job_on(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    node = s.until_running(job)
    time.sleep(3)
    _skew(s, node, "munge", "slurmd")
    s.wait("Slurm misses it", lambda: s.cluster.job(job)["restart_cnt"] == 1, within=330)
    return (job,)


def _skew(s: Stage, machine: str, *units: str) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    encoded = base64.b64encode(library.read_bytes()).decode()
    s.cluster.exec(machine, "sh", "-c", f"base64 -d > {FAKETIME}", stdin=encoded)
    lines = f"[Service]\nEnvironment=LD_PRELOAD={FAKETIME}\nEnvironment=FAKETIME=+{SKEW_S}s\n"
    for unit in units:
        folder = f"/run/systemd/system/{unit}.service.d"
        s.cluster.exec(machine, "sh", "-c", f"mkdir -p {folder} && cat > {folder}/fault.conf", stdin=lines)
    s.cluster.exec(machine, "systemctl", "daemon-reload")
    s.cluster.exec(
        machine, "systemctl", "restart", *units, check=False
    )  # a slurmd that is not heard may give up


def _unskew(s: Stage, machine: str, *units: str) -> None:
    for unit in units:
        s.cluster.exec(machine, "rm", f"/run/systemd/system/{unit}.service.d/fault.conf")
    s.cluster.exec(machine, "systemctl", "daemon-reload")
    s.cluster.exec(machine, "systemctl", "restart", *units)


@run("boots fail")
def no_boot_is_heard_of_for_longer_than_resume_timeout(s: Stage) -> Sequence[int]:
    job = s.submit(1)
    end, mute = time.monotonic() + 130, set[str]()
    while time.monotonic() < end:
        if new := set(s.new()) - mute:
            mute |= new
            s.cluster.control().hang_metadata(*mute)  # without it a machine does not know what it is
        time.sleep(0.1)
    s.cluster.control().hang_metadata()
    assert len(mute) > 1, "no boot failed"
    gpucluster("pool", "resume", "h200", "-c", s.cluster.name)  # six failures in a row stop the pool
    return (job,)

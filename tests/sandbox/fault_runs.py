"""Runs of a real cluster with one fault each.

A run submits jobs, plants its fault, and returns the jobs that must complete. Then `judge` checks, for every run: each
of these jobs is COMPLETED, no slot had two living instances, no node is drained, no instance is left in the cloud, no run
ended without a signal for a notice that was heard, and no notice requeued a job twice.
"""

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import Cluster, gpucluster
from support.told_runs import second_requeues, untold_runs
from support.waiting import lasting

from gpucluster.elastic.act import Failpoint

AGENT = "gpucluster-agent"
TIMELINE = ("/opt/gpucluster/venv/bin/python", "-m", "gpucluster.elastic.inspect.timeline")
WHY = (*TIMELINE[:-1], "gpucluster.elastic.inspect.why")
DAEMON, DROP_IN = "gpucluster-elastic", "/run/systemd/system/gpucluster-elastic.service.d/fault.conf"
TRIPPED = "/var/lib/gpucluster/elastic/tripped"  # the failpoint that killed the daemon last
SHORT, LONG = "sleep 3", "sleep 12"
TOLD = """\
test "${SLURM_RESTART_COUNT:-0}" = 0 || exit 0
trap 'scontrol update jobid=$SLURM_JOB_ID comment=told' USR1
scontrol update jobid=$SLURM_JOB_ID comment=listens
sleep 300 &
wait
wait
"""  # it ends only after a requeue; the signal of a notice leaves a comment


class Stage:
    """A cluster during one run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.before = self.launched()

    def submit(self, nodes: int = 2, script: str = SHORT, *options: str) -> int:
        return self.cluster.sbatch(f"-N{nodes}", "--gres=gpu:8", *options, script=script)

    def launched(self) -> set[str]:
        """All instances of nodes, also terminated ones, by the cloud's own list."""
        return {i["id"] for i in self.cluster.everything() if i["role"] == "node"}

    def new(self) -> list[str]:
        """The instances of this run, sorted by id."""
        return sorted(self.launched() - self.before)

    def spot(self) -> list[str]:
        """The living spot instances of this run. Only these can get a spot notice."""
        living = {i["id"] for i in self.cluster.instances() if i["market"] == "spot"}
        return [i for i in self.new() if i in living]

    def wait(self, what: str, seen: Callable[[], bool], poll: float = 0.1) -> None:
        self.cluster.wait(what, seen, poll=poll)

    def until(self, job: int, event: str) -> None:
        """Wait until the journal has this event of the job."""
        self.wait(f"the journal has {event} of {job}", lambda: event in self.cluster.timeline(job), poll=0.05)

    def until_launched(self, count: int = 1) -> None:
        self.wait(f"{count} instances are launched", lambda: len(self.new()) >= count, poll=0.05)

    def until_running(self, job: int) -> str:
        """Wait until the job runs; return its batch host."""
        self.wait(f"{job} runs", lambda: self.cluster.state(job) == "RUNNING")
        return str(self.cluster.job(job)["batch_host"])

    def until_script(self, job: int) -> str:
        """Wait until the job's script runs, after the Prolog of its batch host; return the host."""
        host = self.until_running(job)
        self.wait(
            f"the script of {job} runs",
            lambda: bool(self.cluster.exec(host, "pgrep", "-f", stepd(job), check=False)),
        )
        return host

    def until_it_listens(self, job: int) -> None:
        """Wait until the script TOLD has its handler, and the daemon knows that it runs: a job that starts is requeued without a signal."""
        self.until_running(job)
        self.wait(f"{job} listens", lambda: self.cluster.job(job)["comment"] == "listens")
        self.wait(f"the daemon knows of {job}", lambda: "running" in self.cluster.timeline(job))

    def was_told(self, job: int) -> bool:
        """Whether the script TOLD of the job got its signal."""
        return self.cluster.job(job)["comment"] == "told"

    def head(self, *argv: str, check: bool = True) -> str:
        return self.cluster.exec("head", *argv, check=check)

    def kill(self, unit: str, machine: str = "head", signal: str = "KILL") -> None:
        """Send the signal to the main process only: the unit of slurmd contains the processes of jobs, too."""
        self.cluster.exec(machine, "systemctl", "kill", "--kill-whom=main", "-s", signal, unit)

    @contextmanager
    def without_daemon(self) -> Iterator[None]:
        """Stop the daemon, and the agent, which would start it again."""
        for unit in (AGENT, DAEMON):
            self.head("systemctl", "stop", unit)
        try:
            yield
        finally:
            for unit in (DAEMON, AGENT):
                self.head("systemctl", "start", unit)

    def end(self, instance: str) -> None:
        """Terminate an instance outside of gpucluster."""
        self.cluster.ec2().terminate_instances(InstanceIds=[instance])

    def notice(self, instance: str, after_s: float = 40.0, silent: Sequence[str] = ()) -> None:
        """Send a spot notice, and terminate the instance after `after_s`. `silent`: ways that do not carry the notice."""
        self.cluster.control().interrupt(instance, after_s, silent=silent)


def stepd(job: int) -> str:
    """The command line of slurmstepd of the job's batch script, as pgrep's pattern."""
    return f"slurmstepd: \\[{job}\\.batch"


Decision = Callable[[Stage], Sequence[int]]


@dataclass(frozen=True)
class Run:
    """One kind of fault, and the jobs that must survive it."""

    name: str
    kind: str
    do: Decision
    quick: bool = False  # also in `make test`
    exact: bool = False  # the run needs exactly one launch for each slot

    @property
    def minutes(self) -> int:
        """The approximate duration. Slurm sets a lost node DOWN only after SlurmdTimeout."""
        return (
            5
            if any(word in self.name for word in ("permanently", "clock of a node", "resume timeout"))
            else 1
        )


RUNS: list[Run] = []


def run(kind: str, *, quick: bool = False, exact: bool = False) -> Callable[[Decision], Decision]:
    """Register a run under its function's name."""

    def register(do: Decision) -> Decision:
        RUNS.append(Run(do.__name__.replace("_", " "), kind, do, quick, exact))
        return do

    return register


def rows(
    kind: str, names: Sequence[str], quick: Sequence[str] = (), *, exact: bool = False
) -> Callable[[Callable[[Stage, str], Sequence[int]]], None]:
    """Register a run for each of `names`."""

    def register(do: Callable[[Stage, str], Sequence[int]]) -> None:
        for name in names:
            title = f"{do.__name__.replace('_', ' ')} {name}"
            RUNS.append(Run(title, kind, lambda s, name=name: do(s, name), name in quick, exact))

    return register


# --- the judgement ----------------------------------------------------------------------------------------
@dataclass
class Verdict:
    """The result of a run."""

    run: str
    kind: str
    seconds: float
    nodes: int
    launches: int
    leaked: int = 0
    lost: int = 0
    stuck: int = 0
    untold: int = (
        0  # runs that ended without a signal although the daemon had heard the notice: a lost checkpoint
    )
    twice: int = 0  # second requeues for one notice
    words: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.leaked or self.lost or self.stuck or self.untold or self.twice or self.words)

    def check(self) -> None:
        """Fail the test with the problems."""
        assert self.good, "\n".join(self.words)


def judge(cluster: Cluster, what: Run) -> Verdict:
    """Do the run and judge it. Afterwards the cluster has no job and no node, or the verdict reports the rest."""
    began = time.monotonic()
    stage = Stage(cluster)
    words: list[str] = []
    jobs: Sequence[int] = ()
    try:
        jobs = what.do(stage)
    except Exception as error:  # noqa: BLE001 -- also after a failed run the cluster is judged and the next run begins
        words.append(f"the run itself: {str(error)[:2000]}")
    lost = [words_of for job in jobs if (words_of := _lost(stage, job))]
    stuck, leaked = _quiet(stage)
    told = {job: _events(stage, job) for job in jobs}
    words.extend(line for events in told.values() for line in _doubles(events))
    untold = [f"untold: job {job}: {line}" for job, events in told.items() for line in untold_runs(events)]
    twice = [f"twice: job {job}: {line}" for job, events in told.items() for line in second_requeues(events)]
    slots, new = {slot for events in told.values() for slot in _slots(events)}, stage.new()
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
        untold=len(untold),
        twice=len(twice),
        words=[*words, *lost, *stuck, *leaked, *untold, *twice],
    )


def _lost(stage: Stage, job: int) -> str:
    """Return the state of the cluster if the job does not complete; else empty text."""
    try:
        stage.wait(f"{job} is done", lambda: stage.cluster.state(job) == "COMPLETED", poll=0.3)
    except AssertionError as error:
        return f"lost: job {job}: {str(error)[:4000]}"
    return ""


def _quiet(stage: Stage) -> tuple[list[str], list[str]]:
    """Remove all faults and jobs. Return the nodes that are not powered down and the instances that are left."""
    cluster = stage.cluster
    cluster.control().clear()
    cluster.exec("head", "scancel", "--user", "researcher", check=False)
    picture = ""
    try:
        cluster.wait("no job holds a node", lambda: not _busy(stage))
        cluster.wait("every node is gone and no slot is blocked", lambda: _all_off(cluster))
    except AssertionError as error:
        picture = str(error)[:4000]
    stuck = [
        f"stuck: {name} {'+'.join(n['state'])} {n['reason']} {picture}"
        for name, n in cluster.nodes().items()
        if not set(n["state"]) <= {"IDLE", "CLOUD", "POWERED_DOWN", "NOT_RESPONDING"}
    ]
    return stuck, [f"leaked: {i['id']} {picture}" for i in cluster.instances()]


def _all_off(cluster: Cluster) -> bool:
    """Power down what is up, also a replacement that came up meanwhile. Return whether nothing is left."""
    cluster.power_down()
    return cluster.all_gone()


def _busy(stage: Stage) -> bool:
    return bool(stage.head("squeue", "-h", "-t", "R,CF,CG", "-o", "%i", check=False).split())


def _events(stage: Stage, job: int) -> list[dict[str, Any]]:
    return json.loads(stage.head(*TIMELINE, str(job), "--json"))


def _slots(events: Sequence[Mapping[str, Any]]) -> set[str]:
    return {m["slot"] for m in events if m["what"] == "launched"}


def _doubles(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Report slots with two living instances. A second incarnation may have one after the first is gone."""
    living: dict[str, str] = {}
    for m in events:
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
def daemon_is_killed_at(s: Stage, point: str) -> Sequence[int]:
    with dying(s, point):
        job = s.submit()
        if "end" in point:
            s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
            s.cluster.power_down()
    return (job,)


@rows("daemon killed", NOTICED)
def daemon_is_killed_after_a_spot_notice_at(s: Stage, point: str) -> Sequence[int]:
    with dying(s, point):
        job = s.submit(script=LONG)
        s.until_script(job)  # Slurm requeues a job that has not started without a signal
        s.notice(s.spot()[0])
    return (job,)


@contextmanager
def dying(s: Stage, point: str) -> Iterator[None]:
    """The daemon kills itself once at this failpoint. The block makes it reach the failpoint."""
    s.head("mkdir", "-p", DROP_IN.rpartition("/")[0])
    text = f"[Service]\nEnvironment=GPUCLUSTER_FAILPOINT={point}\n"
    s.cluster.exec("head", "sh", "-c", f"cat > {DROP_IN}", stdin=text)
    try:
        s.head("systemctl", "daemon-reload")
        s.head("rm", "-f", TRIPPED)
        s.head("systemctl", "restart", DAEMON)
        yield
        s.wait("the daemon was killed at the failpoint", lambda: s.head("cat", TRIPPED, check=False) == point)
    finally:
        s.head("rm", "-f", DROP_IN)
        s.head("systemctl", "daemon-reload")
        s.head("systemctl", "restart", DAEMON)


@rows("daemon killed", ("placed", "launched", "registered"), exact=True)
def daemon_is_killed_when_the_job_is(s: Stage, moment: str) -> Sequence[int]:
    job = s.submit()
    s.until(job, moment)
    s.kill(DAEMON)
    return (job,)


@run("daemon stopped", quick=True, exact=True)
def daemon_is_frozen_for_twenty_seconds_during_a_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until(job, "placed")
    s.kill(DAEMON, signal="STOP")
    lasting(20)
    s.kill(DAEMON, signal="CONT")
    return (job,)


@run("daemon stopped")
def daemon_is_stopped_while_one_job_ends_and_another_starts(s: Stage) -> Sequence[int]:
    first = s.submit(script=LONG)
    s.until_running(first)
    with s.without_daemon():
        second = s.submit(3)
        lasting(8)
    return (first, second)


@rows("slurmctld killed", ("launched", "registered"), quick=("launched",))
def slurmctld_is_killed_when_the_job_is(s: Stage, moment: str) -> Sequence[int]:
    job = s.submit()
    s.until(job, moment)
    s.cluster.saved(job)
    s.kill("slurmctld")
    return (job,)


@run("node's process killed", quick=True)
def slurmstepd_of_a_batch_script_is_killed(s: Stage) -> Sequence[int]:
    """Slurm has the job running until its time limit, as after a launch message that a killed slurmctld lost."""
    job = s.submit(script='[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 3600')
    host = s.until_script(job)
    s.cluster.exec(host, "pkill", "-KILL", "-f", stepd(job))
    return (job,)


@run("slurmctld restarted")
def slurmctld_is_restarted_during_a_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.cluster.saved(job)
    s.head("systemctl", "restart", "slurmctld")
    return (job,)


@run("slurmctld stopped")
def slurmctld_is_stopped_and_why_reads_the_daemons_record(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.cluster.saved(job)
    s.head("systemctl", "stop", "slurmctld")
    try:
        answer = s.head(*WHY, str(job), check=False)
    finally:
        s.head("systemctl", "start", "slurmctld")
    told = answer.startswith((f"job {job} starts", f"job {job} runs"))  # it runs already on a busy machine
    assert told or "slurmctld does not answer" in answer, answer
    return (job,)


@run("reconfigure", quick=True)
def slurm_is_reconfigured_during_a_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    for _ in range(4):
        s.head("scontrol", "reconfigure")
        lasting(0.7)
    return (job,)


@rows("node's process killed", ("slurmd", "gpucluster-agent", "munge"))
def during_a_job_a_node_loses_its(s: Stage, unit: str) -> Sequence[int]:
    job = s.submit(script=LONG)
    node = s.until_script(job)  # if slurmd dies during the Prolog, Slurm waits for BatchStartTimeout: 210 s
    s.kill(unit, machine=node)
    return (job,)


@rows("node's process killed", ("gpucluster-agent", "munge"))
def during_a_boot_a_node_loses_its(s: Stage, unit: str) -> Sequence[int]:
    job = s.submit()
    s.until(job, "booted")
    instance = s.new()[0]
    s.cluster.exec(instance, "systemctl", "kill", "-s", "KILL", unit, check=False)
    return (job,)


@run("head's process killed")
def munged_of_the_head_is_killed_during_a_burst(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.kill("munge")
    return (job,)


# --- errors of the cloud, lost replies, terminated instances --------------------------------------------------
@rows(
    "errors of the cloud",
    ("RequestLimitExceeded", "InternalError", "ServiceUnavailable", "InsufficientInstanceCapacity", "VcpuLimitExceeded"),
    quick=("RequestLimitExceeded",),
)  # fmt: skip
def three_launches_return(s: Stage, code: str) -> Sequence[int]:
    s.cluster.control().next_error("RunInstances", code, times=3)
    return (s.submit(),)


@rows("errors of the cloud", ("RequestLimitExceeded", "InternalError"))
def ten_descriptions_return(s: Stage, code: str) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.cluster.control().next_error("DescribeInstances", code, times=10)
    return (job,)


@rows("errors of the cloud", ("RequestLimitExceeded", "InternalError"))
def five_terminations_return(s: Stage, code: str) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.until_running(job)
    s.cluster.control().next_error("TerminateInstances", code, times=5)
    return (job,)


@rows(
    "lost reply",
    ("RunInstances", "TerminateInstances", "DescribeInstances"),
    quick=("RunInstances",),
    exact=True,
)
def reply_is_lost_of(s: Stage, action: str) -> Sequence[int]:
    s.cluster.control().lose_reply(action, times=2)
    return (s.submit(),)


@rows("no capacity", ("machine", "market", "zone"))
def no_capacity_of_one(s: Stage, what: str) -> Sequence[int]:
    none = {"machine": "p5en.48xlarge", "market": "spot", "zone": "us-east-1a"}
    s.cluster.capacity(0, **{what: none[what]})
    return (s.submit(),)


@run("no capacity")
def no_capacity_for_a_while_and_three_jobs_wait(s: Stage) -> Sequence[int]:
    s.cluster.capacity(0)
    jobs = [s.submit(n) for n in (1, 2, 3)]
    lasting(12)
    s.cluster.capacity(None)
    return jobs


# The daemon powered down slots that it had just undrained for a gang that had waited longer than a minute.
@rows("recovery", ("10", "20", "30", "45", "60", "75", "90", "120", "150", "180", "240", "300"), exact=True)
def capacity_comes_back_after_seconds(s: Stage, seconds: str) -> Sequence[int]:
    s.cluster.capacity(0)
    job = s.submit(4)
    lasting(float(seconds))
    s.cluster.capacity(None)
    return (job,)


@run("no capacity")
def capacity_for_the_smaller_of_two_gangs(s: Stage) -> Sequence[int]:
    s.cluster.capacity(2)
    jobs = [s.submit(4), s.submit(2)]
    s.wait("the smaller one is done", lambda: s.cluster.state(jobs[1]) == "COMPLETED")
    s.cluster.capacity(None)
    return jobs


@rows("terminated instance", ("launched", "booted", "registered", "running"))
def instance_is_terminated_when_the_job_is(s: Stage, moment: str) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.until(job, moment)
    s.end(s.new()[0])
    if moment == "launched":  # the replacement belongs to the same allocation
        s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
        assert s.cluster.job(job)["restart_cnt"] == 0, "a failed boot caused a requeue"
    return (job,)


@run("terminated instance")
def all_instances_are_terminated_at_once(s: Stage) -> Sequence[int]:
    job = s.submit(3, script=LONG)
    s.until_running(job)
    for instance in s.new():
        s.end(instance)
    return (job,)


@run("terminated instance")
def node_powers_itself_off(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.cluster.exec(s.until_running(job), "systemctl", "poweroff", "--no-block", check=False)
    return (job,)


# --- notices --------------------------------------------------------------------------------------------------
@rows("spot notice", ("by metadata and queue", "by metadata alone", "by the queue alone", "by neither"))
def spot_notice_during_a_job(s: Stage, how: str) -> Sequence[int]:
    silent = {
        "by metadata alone": ("queue",),
        "by the queue alone": ("metadata",),
        "by neither": ("metadata", "queue"),
    }
    job = s.submit(script=TOLD)
    s.until_it_listens(job)
    s.notice(s.spot()[0], silent=silent.get(how, ()))
    s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
    assert s.cluster.job(job)["restart_cnt"] == 1, "it was not requeued once"
    assert s.was_told(job) is (how != "by neither"), f"the script was told: {s.was_told(job)}"
    return (job,)


@run("spot notice")
def spot_notices_for_three_nodes_at_once(s: Stage) -> Sequence[int]:
    job = s.submit(3, script=TOLD)
    s.until_it_listens(job)
    for instance in s.spot():
        s.notice(instance)
    s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
    assert s.was_told(job), "the script was not told"
    return (job,)


@run("spot notice")
def spot_notice_for_one_task_of_an_array(s: Stage) -> Sequence[int]:
    """Regression: a notice for one task requeued the whole array."""
    array = str(s.submit(1, "sleep 60", "--array=1-3"))
    running = ("squeue", "-h", "-j", array, "-t", "R", "-o", "%A")  # each task's own id
    s.wait("its tasks run", lambda: len(s.head(*running, check=False).split()) == 3)
    tasks = [int(task) for task in s.head(*running).split()]
    s.notice(s.spot()[0])
    for task in tasks:
        s.wait(f"{task} is done", lambda task=task: s.cluster.state(task) == "COMPLETED")
    assert sorted(s.cluster.job(task)["restart_cnt"] for task in tasks) == [0, 0, 1]
    return tasks


@run("spot notice")
def spot_notice_for_a_booting_node(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched(2)
    s.notice(s.spot()[0], after_s=20.0)
    return (job,)


@run("rebalance")
def rebalance_recommendation_leaves_the_job_alone(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.until_running(job)
    s.cluster.control().rebalance(s.new()[0])
    s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
    assert s.cluster.job(job)["restart_cnt"] == 0, "a recommendation interrupted a job"
    return (job,)


@run("maintenance")
def maintenance_is_scheduled_during_a_job(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    s.until_running(job)
    s.cluster.control().maintain(s.new()[0], code="system-reboot", after_s=3600.0)
    return (job,)


@rows("hung metadata", ("a boot", "a job"))
def metadata_service_hangs_during(s: Stage, when: str) -> Sequence[int]:
    job = s.submit(script=LONG)
    if when == "a boot":
        s.until_launched(2)
    else:
        s.until_running(job)
    s.cluster.control().hang_metadata(*s.new())
    lasting(12)
    s.cluster.control().hang_metadata()
    return (job,)


# --- the network, the disk, the clock ---------------------------------------------------------------------------
CUT = """table inet cut {
  chain in { type filter hook input priority -300; policy drop; iif lo accept; }
  chain out { type filter hook output priority -300; policy drop; oif lo accept; }
}"""


@rows("network cut", ("briefly", "permanently"), quick=("briefly",))
def node_loses_its_network(s: Stage, how: str) -> Sequence[int]:
    """By a rule of the machine's firewall, because networkd sets a link up again."""
    job = s.submit(script=LONG)
    node = s.until_running(job)
    s.cluster.exec(node, "sh", "-c", "cat > /run/cut.nft", stdin=CUT)
    back = "; sleep 6; nft delete table inet cut" if how == "briefly" else ""
    s.cluster.exec(node, "systemd-run", "--no-block", "sh", "-c", f"nft -f /run/cut.nft{back}")
    if how == "permanently":
        s.wait(
            "Slurm has set the node DOWN and requeued the job",
            lambda: s.cluster.job(job)["restart_cnt"] == 1,
        )  # SlurmdTimeout
    return (job,)


@run("disk full", quick=True)
def disk_of_the_journal_is_full_for_a_while(s: Stage) -> Sequence[int]:
    """The journal is on a small file system, which is full during a burst. Nothing is launched until it has space again."""
    folder = "/var/lib/gpucluster/elastic"
    small = f"mount -t tmpfs -o size=3m,mode=0700 fault {folder} && cp -a /run/kept/. {folder}/ && chown slurm:slurm {folder}"
    with s.without_daemon():
        s.head("sh", "-c", f"cp -a {folder} /run/kept && {small}")
    try:
        s.head("sh", "-c", f"dd if=/dev/zero of={folder}/fill bs=4k 2>/dev/null || true")
        job = s.submit()
        lasting(10)
        assert not s.new(), "launched without a record"
        s.head("rm", f"{folder}/fill")
        s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
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


# --- users and operators ---------------------------------------------------------------------------------------------------
@rows("cancelled", ("placed", "launched", "registered"))
def job_is_cancelled_when_it_is(s: Stage, moment: str) -> Sequence[int]:
    gone, stays = s.submit(), s.submit(1)
    s.until(gone, moment)
    s.head("scancel", str(gone))
    return (stays,)


@run("cancelled")
def user_requeues_the_job_while_its_nodes_boot(s: Stage) -> Sequence[int]:
    job = s.submit()
    s.until_launched()
    s.head("scontrol", "requeue", str(job))
    return (job,)


@run("drained")
def operator_drains_a_node_during_a_job(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    node = s.until_running(job)
    s.head("scontrol", "update", f"nodename={node}", "state=drain", "reason=by hand")
    s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
    lasting(12)  # longer than the pool's idle time
    assert "DRAIN" in s.cluster.nodes()[node]["state"], "the operator's drain was lifted"
    s.head("scontrol", "update", f"nodename={node}", "state=undrain")
    return (job,)


@run("drained", quick=True)
def operator_orders_a_drain_during_a_job(s: Stage) -> Sequence[int]:
    """`gpucluster node drain` and `undrain`: the job goes on, the drain stays, and the next job uses the node again."""
    job = s.submit(1, LONG, "-w", "h200-1a-1")
    s.until_running(job)
    order = ("h200-1a-1", "-c", s.cluster.name)
    gpucluster("node", "drain", *order, "--because", "fan 3 is loud")
    s.wait("Slurm shows the drain", lambda: "DRAIN" in s.cluster.nodes()["h200-1a-1"]["state"])
    reason = s.cluster.nodes()["h200-1a-1"]["reason"]
    assert reason.startswith("fan 3 is loud (by "), reason
    s.wait(f"{job} is done", lambda: s.cluster.state(job) == "COMPLETED")
    lasting(12)  # longer than the pool's idle time
    assert "DRAIN" in s.cluster.nodes()["h200-1a-1"]["state"], "the operator's drain was lifted"
    gpucluster("node", "undrain", *order)
    s.wait("Slurm shows no drain", lambda: "DRAIN" not in s.cluster.nodes()["h200-1a-1"]["state"])
    return (job, s.submit(1, SHORT, "-w", "h200-1a-1"))


@run("drained")
def slurmctld_drains_a_node(s: Stage) -> Sequence[int]:
    """Regression: such a node stayed up without end: no job could use it, and nothing powered it down."""
    first = s.submit(1, "sleep 1", "-w", "h200-1a-1")
    s.wait(f"{first} is done", lambda: s.cluster.state(first) == "COMPLETED")
    broken = "rm /opt/gpucluster/bin/prolog; printf '#!/bin/sh\nexit 1\n' > /opt/gpucluster/bin/prolog"
    s.cluster.exec("h200-1a-1", "sh", "-c", f"{broken}; chmod 755 /opt/gpucluster/bin/prolog")
    job = s.submit(1, "sleep 1", "-w", "h200-1a-1")
    s.wait(
        "slurmctld has drained the node", lambda: s.cluster.nodes()["h200-1a-1"]["reason"] == "Prolog error"
    )
    return (first, job)


@run("unknown instance")
def unknown_instance_appears_during_a_burst(s: Stage) -> Sequence[int]:
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
        InstanceMarketOptions={
            "MarketType": "spot"
        },  # the template has no market, and it tags a spot request
        NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": bindings["subnets"]["us-east-1a"]}],  # T31
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return (job,)


# --- clocks and boots -------------------------------------------------------------------------------------------
FAKETIME, SKEW_S = "/usr/local/lib/libfaketime.so.1", 400  # beyond munge's 300 s


@run("clock skew", quick=True)
def clock_of_the_head_is_wrong_for_a_while(s: Stage) -> Sequence[int]:
    """libfaketime in munged is a stand-in for a wrong clock: every credential of a node is too old."""
    job = s.submit()
    _skew(s, "head", "munge")
    s.until_launched(2)
    lasting(10)
    _unskew(s, "head", "munge")
    return (job,)


@run("clock skew")
def clock_of_a_node_is_wrong_during_a_job(s: Stage) -> Sequence[int]:
    job = s.submit(script=LONG)
    node = s.until_script(job)
    _skew(s, node, "munge", "slurmd")
    s.wait(
        "Slurm has set the node DOWN and requeued the job",
        lambda: s.cluster.job(job)["restart_cnt"] == 1,
    )
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
    )  # a slurmd that reaches no slurmctld may end


def _unskew(s: Stage, machine: str, *units: str) -> None:
    for unit in units:
        s.cluster.exec(machine, "rm", f"/run/systemd/system/{unit}.service.d/fault.conf")
    s.cluster.exec(machine, "systemctl", "daemon-reload")
    s.cluster.exec(machine, "systemctl", "restart", *units)


@run("boots fail")
def no_node_registers_for_longer_than_resume_timeout(s: Stage) -> Sequence[int]:
    job = s.submit(1)
    end, unregistered = time.monotonic() + 260, set[str]()

    def seen() -> bool:
        if new := set(s.new()) - unregistered:
            unregistered.update(new)
            s.cluster.control().hang_metadata(*unregistered)  # a machine cannot find its role without it
        return time.monotonic() > end

    s.wait("the time of the fault is over", seen)
    s.cluster.control().hang_metadata()
    assert len(unregistered) > 1, "no boot failed"
    gpucluster("pool", "resume", "h200", "-c", s.cluster.name)  # six failures in a row suspend the pool
    return (job,)

"""A bundle that removes nodes waits for their jobs: on the head, on the standby, on an existing head; after kills and reboots."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_machine import FakeMachine, Killed, a_bundle, a_small_plan

from gpucluster import artifacts
from gpucluster.agent.boot import bundles, held_bundle
from gpucluster.agent.boot.boot_state import BootState, Bundle, Identity
from gpucluster.agent.boot.held_bundle import Obstacles, obstacles, sentence
from gpucluster.agent.roles import head as head_role
from gpucluster.plan import codec, names
from gpucluster.plan.messages import BundleRelease, HeldBundle
from gpucluster.plan.model import SlurmOnAws, Standby
from gpucluster.plan.removals import Removals
from gpucluster.slurm.parse import SlurmAnswerError, parse_active
from gpucluster.slurm.values import SlurmNode

OFF, UP = ("IDLE", "CLOUD", "POWERED_DOWN"), ("IDLE", "CLOUD")


def slots(most: int, *, gpus: int = 2, standby: bool = False) -> SlurmOnAws:
    """The plan with `most` slots."""
    plan = a_small_plan(gpus=gpus)
    pool = replace(plan.pools[0], max=most, slots=(replace(plan.pools[0].slots[0], last=most),))
    second = Standby(machine="m7i.large", zone="us-east-1b", address="10.42.0.11", state="/state")
    return replace(plan, pools=(pool,), head=replace(plan.head, standby=second if standby else None))


FOUR, THREE = a_bundle(slots(4)), a_bundle(slots(3))


class Head(FakeMachine):
    """A head with a slurmctld that shows these nodes and jobs. `drains` are the calls of `scontrol update`."""

    shown: dict[str, tuple[str, ...]]
    jobs: list[str]
    reasons: dict[str, str]

    def __init__(self, root: Path, **change: object) -> None:
        super().__init__(root, role=names.ROLE_HEAD, address="10.42.0.10", **change)  # type: ignore[arg-type]
        self.shown = {f"h200-1a-{n}": OFF for n in range(1, 5)}
        self.jobs, self.reasons = [], {}

    def run_job(self, number: int, node: str) -> None:
        self.shown[node] = ("ALLOCATED", "CLOUD", "DRAIN")
        self.jobs.append(a_job(number, "RUNNING", nodes=node))

    def end_jobs(self) -> None:
        self.jobs.clear()
        self.shown = dict.fromkeys(self.shown, (*OFF, "DRAIN"))

    def _scontrol(self, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, str]:
        if "nodes" in argv:
            listed = [
                {"name": name, "state": list(words), "reason": self.reasons.get(name, "")}
                for name, words in self.shown.items()
            ]
            return 0, json.dumps({"nodes": listed})
        return super()._scontrol(argv, env)

    def _outcome(
        self, argv: tuple[str, ...], stdin: str | bytes | None, env: Mapping[str, str] | None
    ) -> tuple[int, str]:
        code, text = super()._outcome(argv, stdin, env)
        return (code, "".join(self.jobs)) if argv[0] == "squeue" and code == 0 else (code, text)


def a_job(number: int, state: str, nodes: str = "", partition: str = "gpu", required: str = "") -> str:
    """A row of squeue."""
    return f"{number}|{state}|{partition}|{nodes}|{required}\n"


class Agent:
    """The loop of the head, one round at a time."""

    def __init__(self, head: FakeMachine) -> None:
        self.head, self.state, self.table, self.last = head, BootState(), head_role.BOOT, b""

    def check(self) -> dict[str, object]:
        self.state, done, self.last = head_role.run_once(
            self.head.machine(), self.table, self.state, self.last
        )
        self.table = head_role.FOLLOW if done else self.table
        return json.loads(self.head.services.objects[names.STATUS_KEY])

    def offer(self, bundle: bytes) -> dict[str, object]:
        self.head.services.objects[names.BUNDLE_KEY] = bundle
        return self.check()


def a_busy_head(root: Path) -> tuple[Head, Agent]:
    """A head with four nodes, and a job on the fourth."""
    head = Head(root)
    agent = Agent(head)
    assert agent.offer(FOUR)["ready"]
    head.run_job(12, "h200-1a-4")
    return head, agent


def held(head: FakeMachine) -> HeldBundle | None:
    path = head.root / names.HELD_BUNDLE.lstrip("/")
    return codec.loads(HeldBundle, path.read_text()) if path.exists() else None


def applied(status: Mapping[str, object]) -> bytes:
    return {artifacts.digest(one): one for one in (FOUR, THREE)}[str(status["applied"])]


def release(head: FakeMachine, bundle: bytes) -> None:
    order = BundleRelease(bundle=artifacts.digest(bundle), by="anna", at=1.0)
    head.put(names.BUNDLE_RELEASE, codec.dumps(order))


def test_a_bundle_that_removes_a_busy_node_is_applied_when_the_job_has_ended(tmp_path):
    """Regression: slurmctld read the files at once and ended the job."""
    head, agent = a_busy_head(tmp_path)
    status = agent.offer(THREE)
    digest = artifacts.digest(THREE)
    assert (applied(status), status["bundle"], status["ready"]) == (FOUR, digest, False)
    assert status["detail"] == (
        f"bundle {digest[:12]} is held, with all its changes, because it removes h200-1a-4. It waits: job 12 must end on "
        f"h200-1a-4. To apply it now and end these jobs: gpucluster bundle apply {digest[:12]} --now -c trial"
    )
    assert held(head) == HeldBundle(bundle=digest, nodes=("h200-1a-4",), waits_for=str(status["detail"]))
    assert head.commands("scontrol").count(("scontrol", "reconfigure")) == 0
    assert applied(agent.check()) == FOUR
    head.end_jobs()
    status = agent.check()
    assert (applied(status), status["ready"], status["detail"]) == (THREE, True, "")
    assert held(head) is None


def test_an_undrained_node_is_waited_for_because_a_job_could_start_there(tmp_path):
    head = Head(tmp_path)
    agent = Agent(head)
    agent.offer(FOUR)
    status = agent.offer(THREE)
    assert "h200-1a-4 must be drained, which the daemon does" in str(status["detail"])
    head.shown["h200-1a-4"] = (*OFF, "DRAIN")
    assert applied(agent.check()) == THREE


def test_a_node_that_slurmctld_does_not_list_is_not_waited_for(tmp_path):
    head = Head(tmp_path)
    agent = Agent(head)
    agent.offer(FOUR)
    del head.shown["h200-1a-4"]
    assert applied(agent.offer(THREE)) == THREE


def test_other_changes_are_not_held(tmp_path):
    head, agent = a_busy_head(tmp_path)
    status = agent.offer(a_bundle(replace(slots(5), users=())))
    assert (status["ready"], held(head)) == (True, None)


def test_a_newer_bundle_without_the_removal_ends_the_hold(tmp_path):
    head, agent = a_busy_head(tmp_path)
    agent.offer(THREE)
    assert agent.offer(FOUR)["ready"]
    assert held(head) is None


def test_now_applies_the_named_bundle_only(tmp_path):
    head, agent = a_busy_head(tmp_path)
    release(head, a_bundle(slots(2)))
    assert applied(agent.offer(THREE)) == FOUR
    release(head, THREE)
    status = agent.check()
    assert (applied(status), status["ready"]) == (THREE, True)
    assert not (head.root / names.BUNDLE_RELEASE.lstrip("/")).exists()
    assert held(head) is None


def test_a_broken_order_is_no_order(tmp_path):
    head, agent = a_busy_head(tmp_path)
    head.put(names.BUNDLE_RELEASE, "{")
    assert applied(agent.offer(THREE)) == FOUR


def test_while_slurmctld_gives_no_answer_the_bundle_is_held(tmp_path):
    head, agent = a_busy_head(tmp_path)
    head.refuses["scontrol --future show nodes"] = "slurm_load_node error: Unable to contact slurm controller"
    status = agent.offer(THREE)
    assert applied(status) == FOUR
    assert "it is not known which jobs run" in str(status["detail"])


def test_after_a_reboot_the_applied_bundle_runs_until_slurmctld_answers(tmp_path):
    head, agent = a_busy_head(tmp_path)
    agent.offer(THREE)
    head.boot("boot-2")
    agent = Agent(head)
    status = agent.check()
    assert applied(status) == FOUR
    assert "slurmctld does not answer" in str(status["detail"])
    assert head.active["slurmctld.service"] == 1
    assert "job 12 must end" in str(agent.check()["detail"])
    head.end_jobs()
    assert applied(agent.check()) == THREE


def test_a_killed_agent_never_applies_a_held_bundle(tmp_path):
    reached = 0
    for turn in range(40):
        head, agent = a_busy_head(tmp_path / str(turn))
        head.kill_after = turn
        try:
            agent.offer(THREE)
        except Killed:
            reached += 1
            agent = Agent(head)
        head.kill_after = None
        assert applied(agent.check()) == FOUR, f"killed after {turn} effects"
        head.end_jobs()
        assert applied(agent.check()) == THREE, f"killed after {turn} effects"
    assert reached > 5


def test_a_refused_bundle_ends_the_hold(tmp_path):
    """The drains are lifted, because the nodes stay."""
    head, agent = a_busy_head(tmp_path)
    agent.offer(THREE)
    status = agent.offer(a_bundle(slots(3), conf="Bogus=1\n"))
    assert "parser refuses" in str(status["detail"])
    assert held(head) is None


def test_both_trees_stay_while_a_bundle_is_held(tmp_path):
    _head, agent = a_busy_head(tmp_path)
    agent.offer(THREE)
    trees = {p.name for p in (tmp_path / bundles.TREES.lstrip("/")).iterdir()}
    assert trees == {artifacts.digest(FOUR), artifacts.digest(THREE)}


@pytest.mark.parametrize(("listed", "held_back"), [(True, True), (False, False)])
def test_the_standby_waits_for_a_head_that_answers(tmp_path, listed, held_back):
    four, three = a_bundle(slots(4, standby=True)), a_bundle(slots(3, standby=True))
    machine = Head(tmp_path)
    machine.told(names.ROLE_STANDBY)
    machine.services.objects[names.BUNDLE_KEY] = four
    state = with_identity(bundles.fetch(machine.machine(), with_identity(BootState())))
    bundles.apply(machine.machine(), artifacts.digest(four))
    machine.services.objects[names.BUNDLE_KEY] = three
    machine.end_jobs()
    machine.active["gpucluster-elastic.service"] = 1  # the port of slurmctld answers
    if not listed:
        del machine.shown["h200-1a-4"]
    state = held_bundle.hold(machine.machine(), bundles.fetch(machine.machine(), state))
    assert ("the head has not applied it yet" in state.held) is held_back


def with_identity(state: BootState) -> BootState:
    me = Identity(
        instance_id="i-2", address="10.42.0.11", cluster="trial", region="us-east-1", bucket="bkt",
        key=names.BUNDLE_KEY, role=names.ROLE_STANDBY,
    )  # fmt: skip
    return replace(state, identity=me)


# --- what it waits for ---------------------------------------------------------------------------------
GONE = Removals(removed=("n1",), changed=("n2",), partitions=("old",))


def obstacles_of(jobs: str = "", **states: str) -> Obstacles:
    shown = {"n1": "IDLE DRAIN", "n2": "IDLE DRAIN", "n3": "IDLE", **states}
    nodes = {name: SlurmNode(name=name, states=frozenset(words.split())) for name, words in shown.items()}
    return obstacles(GONE, nodes, parse_active(jobs))


@pytest.mark.parametrize(
    ("one", "running", "queued"),
    [
        (a_job(1, "RUNNING", "n1", "new"), True, False),
        (a_job(1, "RUNNING", "n[2-3]", "new"), True, False),
        (a_job(1, "RUNNING", "n3", "new"), False, False),
        (a_job(1, "CONFIGURING", "n1", "new"), True, False),
        (a_job(1, "SUSPENDED", "n1", "new"), True, False),
        (a_job(1, "COMPLETING", "n1", "new"), True, False),
        (a_job(1, "RUNNING", "n3", "old"), True, False),
        (a_job(1, "PENDING", "", "new"), False, False),
        (a_job(1, "PENDING", "", "new", "n1"), False, True),
        (a_job(1, "REQUEUE_HOLD", "", "new", "n1"), False, True),
        (a_job(1, "PENDING", "", "new", "n2"), False, False),  # the node stays, with other hardware
        (a_job(1, "PENDING", "", "old"), False, True),
        (a_job(1, "PENDING", "", "new,old"), False, True),  # 24.11 ends it, too
    ],
)  # fmt: skip
def test_jobs_that_slurm_would_end(one, running, queued):
    found = obstacles_of(one)
    assert (bool(found.running), bool(found.queued)) == (running, queued)


@pytest.mark.parametrize(
    ("states", "undrained"),
    [
        ("IDLE DRAIN", ()),
        ("IDLE POWERED_DOWN DRAIN", ()),
        ("IDLE POWERED_DOWN", ("n1",)),
        ("IDLE", ("n1",)),
        ("DOWN", ("n1",)),
        ("FUTURE", ()),
        ("IDLE FAIL", ()),
    ],
)
def test_nodes_that_could_take_a_job(states, undrained):
    assert obstacles_of(n1=states).undrained == undrained


def test_many_jobs_are_counted():
    jobs = "".join(a_job(n, "RUNNING", "n1") for n in range(1, 12))
    offered = Bundle(digest="ab" * 32, etag="", tree=Path(), plan=a_small_plan(), bindings=None)
    text = sentence(offered, GONE, obstacles_of(jobs))
    assert "jobs 1, 2, 3, 4, 5, 6, 7, 8 and 3 more must end on n1" in text
    assert "it removes n1 and the partition old and changes the hardware or address of n2" in text
    assert not Obstacles()


@pytest.mark.parametrize("row", ["12|RUNNING|gpu|n1\n", "x|RUNNING|gpu|n1|\n", "slurm_load_jobs error\n"])
def test_row_of_squeue_that_cannot_be_read_is_an_error(row):
    with pytest.raises(SlurmAnswerError, match="a row of squeue cannot be read"):
        parse_active(row)


def test_required_nodes_that_are_no_hostlist_count_as_one_name():
    assert parse_active(a_job(1, "PENDING", required="n|1["))[0].required_nodes == ("n|1[",)

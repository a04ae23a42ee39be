"""`gpucluster down` shows what it destroys and asks. Without a yes nothing changes."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from support.downs import ACCOUNT, BUCKET, DISK, GROUND, VPC, Cluster

from gpucluster.cli.down import empty
from gpucluster.cli.down_jobs import Jobs, jobs_of
from gpucluster.cli.down_plan import plan_of
from gpucluster.cli.down_world import World
from gpucluster.cli.main import run
from gpucluster.cloud.control import DOWN_ENDED
from gpucluster.cloud.network_interfaces import Occupant
from gpucluster.cloud.port import CloudError, Control, Fault, Instance, InstanceState, Scaling
from gpucluster.engine.deployment import DeployedResource
from gpucluster.errors import INTERRUPTED, GpuclusterError, StateError
from gpucluster.plan.model import Market
from gpucluster.shell import Result

HEAD = DeployedResource(type="aws:ec2/instance:Instance", name="burst-head", id="i-head")
EKS = DeployedResource(type="aws:eks/cluster:Cluster", name="burst", id="burst")
JOBS = Jobs(running={"ann": 2, "bob": 1}, waiting={"cy": 5})
TO_TYPE = "next: gpucluster down burst --aws --yes"
Said = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """A terminal with the lines that a person types; at their end, an end of input."""

    def isatty(self) -> bool:
        return True


class Interrupted(Terminal):
    """A terminal at which a person presses Ctrl-C."""

    def readline(self, *_: object) -> str:
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


@dataclass
class Desk:
    """Where a person types `gpucluster down`, and what is printed there."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def use(self, cluster: Cluster, stdin: io.StringIO | None = None, region: str = "us-east-1") -> Cluster:
        """Let `down` act on this cluster, with this standard input."""
        self.monkeypatch.setattr("gpucluster.cli.down.access_of", lambda *_: cluster.place(region))
        self.monkeypatch.setattr("sys.stdin", stdin or io.StringIO())
        return cluster


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(monkeypatch, capsys)


def machine(name: str, kind: str, market: Market, state: InstanceState = InstanceState.RUNNING) -> Instance:
    return Instance(
        id=name,
        state=state,
        zone="us-east-1a",
        machine=kind,
        market=market,
        address=None,
        launched_at=0.0,
        token=None,
    )


MACHINES = (
    machine("i-head", "m7i.xlarge", Market.ON_DEMAND),
    machine("i-1", "p5en.48xlarge", Market.SPOT),
    machine("i-2", "p5en.48xlarge", Market.SPOT, InstanceState.PENDING),
    machine("i-3", "m7i.xlarge", Market.ON_DEMAND, InstanceState.STOPPED),
    machine("i-4", "m7i.xlarge", Market.ON_DEMAND, InstanceState.TERMINATED),
)


def a_cluster() -> Cluster:
    return Cluster(deployed=(BUCKET, GROUND, DISK, HEAD), machines=MACHINES, jobs=JOBS)


# --- the answer ---------------------------------------------------------------------------------
ANSWERS = [
    ("no terminal", [], None, 2, ("burst is not destroyed: there is no terminal, or its input ended; nothing was changed", TO_TYPE)),
    ("the end of the input", [], Terminal(""), 2, ("there is no terminal, or its input ended", TO_TYPE)),
    ("no", [], Terminal("no\n"), 2, ("the answer is 'no', not 'yes'; nothing was changed", TO_TYPE)),
    ("an empty line", [], Terminal("\n"), 2, ("the answer is '', not 'yes'", TO_TYPE)),
    ("half a yes", [], Terminal("y\n"), 2, ("the answer is 'y', not 'yes'", TO_TYPE)),
    ("Ctrl-C", [], Interrupted(), INTERRUPTED, ("nothing was changed", "")),
    ("another name as confirmation", ["--confirm", "lab"], None, 2, ("the confirmation is 'lab'", "next: gpucluster down burst --yes")),
    ("--yes alone deletes no data", ["--delete-data", "--yes"], None, 2, ("--delete-data needs the cluster's name as confirmation", "next: gpucluster down burst --aws --delete-data --confirm burst")),
    ("a yes is no name", ["--delete-data"], Terminal("yes\n"), 2, ("the confirmation is 'yes', the cluster's name is 'burst'", "next: gpucluster down burst --aws --delete-data --confirm burst")),
    ("Ctrl-C before the name", ["--delete-data"], Interrupted(), INTERRUPTED, ("nothing was changed", "")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "stdin", "code", "said"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS]
)
def test_nothing_changes_without_a_yes(
    options: list[str], stdin: io.StringIO | None, code: int, said: tuple[str, str], desk: Desk
) -> None:
    """`gpucluster down NAME` destroyed a running cluster without a question."""
    cluster = desk.use(a_cluster(), stdin)
    assert run(["down", "burst", *options]) == code
    out, err = desk.capsys.readouterr()
    assert [one for one in said if one not in err] == []
    assert (cluster.changes, out) == ([], "")


CONSENTS = [
    ("yes", [], Terminal("yes\n"), 1),
    ("--yes asks nothing", ["--yes"], Terminal("no\n"), 0),
    ("-y without a terminal", ["-y"], None, 0),
    ("the name as an option", ["--confirm", "burst"], None, 0),
    ("the name of a cluster with its data", ["--delete-data"], Terminal("burst\n"), 1),
    ("--yes with --delete-data asks for the name, once", ["--delete-data", "--yes"], Terminal("burst\n"), 1),
    ("the confirmed name with --delete-data", ["--delete-data", "--confirm", "burst"], None, 0),
]


@pytest.mark.parametrize(
    ("options", "stdin", "questions"), [row[1:] for row in CONSENTS], ids=[row[0] for row in CONSENTS]
)
def test_one_answer_is_enough(
    options: list[str], stdin: io.StringIO | None, questions: int, desk: Desk
) -> None:
    cluster = desk.use(a_cluster(), stdin)
    assert run(["down", "burst", *options]) == 0
    assert "destroy" in cluster.changes
    assert ("release" in cluster.changes) == ("--delete-data" in options)
    err = desk.capsys.readouterr().err
    asked = err.count("Only `yes` is accepted: ") + err.count("type the cluster's name (burst)")
    assert asked == questions


def test_empty_cluster_is_no_question(desk: Desk) -> None:
    for deployed in ((), (GROUND, DISK)):
        desk.use(Cluster(deployed=deployed))
        assert run(["down", "burst"]) == 0
        out, err = desk.capsys.readouterr()
        assert "already empty" in out
        assert "down destroys" not in err


def test_leftover_node_of_an_empty_stack_is_a_question(desk: Desk) -> None:
    cluster = desk.use(Cluster(deployed=(GROUND, DISK), machines=MACHINES[1:2]))
    assert run(["down", "burst"]) == 2
    assert cluster.changes == []


def test_both_worlds_are_a_wrong_use(desk: Desk) -> None:
    assert run(["down", "burst", "--sandbox", "--aws"]) == 2
    assert "--sandbox and --aws exclude each other" in desk.capsys.readouterr().err


# --- the plan -----------------------------------------------------------------------------------
def test_plan_says_what_is_destroyed(desk: Desk) -> None:
    desk.use(a_cluster())
    run(["down", "burst"])
    assert desk.capsys.readouterr().err.splitlines()[:10] == [
        f"down destroys burst in AWS, account {ACCOUNT}, region us-east-1 (Pulumi stack burst, project gpucluster)",
        "  resources  2 are deleted",
        "  data       stays: disk of 100 GiB vol-1 (burst-state), 8.00 USD a month",
        "  machines   1 m7i.xlarge, on-demand, an hour: 0.20 USD",
        "             1 m7i.xlarge, on-demand, stopped, an hour: 0.00 USD",
        "             2 p5en.48xlarge, spot, an hour: unknown: p5en.48xlarge (spot price; on-demand 63.30 USD)",
        "             together an hour: at least 0.20 USD, plus unknown: p5en.48xlarge (spot price; on-demand 63.30 USD)",
        "  jobs       3 running: ann 2, bob 1",
        "             5 waiting: cy 5",
        "error: burst is not destroyed: there is no terminal, or its input ended; nothing was changed",
    ]


def test_plan_of_a_sandbox_names_it_first(desk: Desk) -> None:
    desk.use(Cluster(world=World.SANDBOX, machines=MACHINES[:1]))
    run(["down", "burst"])
    said = desk.capsys.readouterr().err
    assert said.startswith("down destroys burst in the sandbox 'burst' on this machine, ")
    assert "together an hour on AWS, nothing in a sandbox: 0.20 USD\n" in said
    assert "next: gpucluster down burst --sandbox --yes" in said


def test_plan_with_data_says_that_it_is_deleted(desk: Desk) -> None:
    desk.use(a_cluster())
    run(["down", "burst", "--delete-data"])
    said = desk.capsys.readouterr().err
    assert "  resources  4 are deleted\n" in said
    assert "  data       DELETED PERMANENTLY: disk of 100 GiB vol-1 (burst-state), 8.00 USD a month\n" in said


def test_data_that_nothing_protects_is_said_to_be_deleted(desk: Desk) -> None:
    loose = replace(DISK, name="burst-scratch", id="vol-2", protected=False, retained=False)
    desk.use(Cluster(deployed=(BUCKET, GROUND, DISK, loose)))
    run(["down", "burst"])
    said = desk.capsys.readouterr().err
    assert (
        "  data       DELETED PERMANENTLY: disk of 100 GiB vol-2 (burst-scratch), 8.00 USD a month\n" in said
    )
    assert "             stays: disk of 100 GiB vol-1 (burst-state), 8.00 USD a month\n" in said


UNKNOWN = [
    ("the head does not answer", {"jobs": Jobs(running={}, waiting={}, unknown="no head of burst runs")},
     "  jobs       the head does not answer: its jobs are not known (no head of burst runs)\n"),
    ("the head has no job", {"jobs": Jobs(running={}, waiting={})}, "  jobs       none\n"),
    ("a stack without a head", {"deployed": (BUCKET, VPC)}, "  jobs       none of Slurm: the stack has no head; pods: kubectl get pods"),
    ("EC2 throttles", {"listing_fails": CloudError(Fault.THROTTLED, "RequestLimitExceeded", "slow")},
     "  machines   EC2 does not list them, they are not known (RequestLimitExceeded: slow)\n"),
    ("no machine runs", {"machines": ()}, "  machines   none runs\n"),
    ("a block is paid before", {"machines": (machine("i-1", "p5en.48xlarge", Market.CAPACITY_BLOCK),)},
     "unknown: p5en.48xlarge (capacity block: paid in advance)\n"),
    ("a type without a price", {"machines": (machine("i-1", "z9.huge", Market.ON_DEMAND),)}, "unknown: z9.huge (no on-demand price)\n"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "said"), [row[1:] for row in UNKNOWN], ids=[row[0] for row in UNKNOWN])
def test_what_is_not_known_is_named(parts: dict[str, object], said: str, desk: Desk) -> None:
    cluster = desk.use(replace(a_cluster(), **parts))
    assert run(["down", "burst"]) == 2
    assert said in desk.capsys.readouterr().err
    assert cluster.changes == []


def test_price_of_another_region_is_unknown(desk: Desk) -> None:
    desk.use(Cluster(machines=MACHINES[:1]), region="eu-west-1")
    run(["down", "burst"])
    assert "together an hour: unknown: m7i.xlarge (no price for eu-west-1)\n" in desk.capsys.readouterr().err


def test_machine_of_a_node_group_is_counted() -> None:
    inside = replace(MACHINES[1], id="i-9", tags={"eks:cluster-name": "burst"})
    occupants = (
        Occupant(interface="eni-1", tags={}, instance=inside),
        Occupant(interface="eni-2", tags={}, instance=replace(inside, id="i-8", tags={})),
    )
    cluster = Cluster(deployed=(BUCKET, VPC, EKS), inside=occupants)
    assert plan_of(cluster.place("us-east-1"), delete_data=False).instances == {"i-9"}


def test_credentials_of_another_account_change_nothing(desk: Desk) -> None:
    """Nodes are found by the cluster's name: those of another account were terminated."""
    cluster = desk.use(Cluster(account="210987654321"))
    assert run(["down", "burst", "--yes"]) == 2
    said = desk.capsys.readouterr().err
    assert (
        f"the credentials are of the AWS account 210987654321, and the resources of burst are in {ACCOUNT}"
        in said
    )
    assert cluster.changes == []


# --- JSON ---------------------------------------------------------------------------------------
def test_plan_is_part_of_the_json(desk: Desk) -> None:
    desk.use(a_cluster())
    assert run(["down", "burst", "--yes", "--output", "json"]) == 0
    said = json.loads(desk.capsys.readouterr().out)
    plan = said["plan"]
    assert (said["ok"], said["was_empty"], said["nodes"]) == (True, False, 4)
    assert [plan[key] for key in ("world", "account", "region", "stack", "project", "deletes", "delete_data")] == [
        "aws", ACCOUNT, "us-east-1", "burst", "gpucluster", 2, False,
    ]  # fmt: skip
    assert plan["jobs"] == {"running": {"ann": 2, "bob": 1}, "waiting": {"cy": 5}, "unknown": ""}
    assert plan["machines"][2] == {
        "machine": "p5en.48xlarge", "market": "spot", "stopped": False, "count": 2,
        "hourly": {"known": "0", "unknown": ["p5en.48xlarge (spot price; on-demand 63.30 USD)"]},
    }  # fmt: skip
    assert [[disk["id"] for disk in plan[key]] for key in ("retained", "lost")] == [["vol-1"], []]


def test_json_without_a_yes_is_an_error_as_json(desk: Desk) -> None:
    cluster = desk.use(a_cluster())
    assert run(["down", "burst", "--output", "json"]) == 2
    said = json.loads(desk.capsys.readouterr().out)
    assert said["ok"] is False
    assert said["error"]["next"] == "gpucluster down burst --aws --yes"
    assert cluster.changes == []


# --- between plan and act -----------------------------------------------------------------------
def test_stack_that_changed_after_its_plan_is_not_destroyed() -> None:
    """What nobody was shown must not be destroyed."""
    cluster = a_cluster()
    access = cluster.place("us-east-1")
    plan = plan_of(access, delete_data=False)
    cluster.deployed = (BUCKET, GROUND, DISK, replace(HEAD, id="i-new"))
    with pytest.raises(StateError) as caught:
        empty(access, plan)
    assert caught.value.message == (
        "the stack burst changed after its plan was shown: new: Instance burst-head; gone: Instance burst-head; nothing was deleted"
    )
    assert cluster.changes == []


def test_stack_that_changes_while_nodes_end_is_not_destroyed() -> None:
    cluster = a_cluster()
    access = cluster.place("us-east-1")
    plan = plan_of(access, delete_data=False)

    def another_up(_: Sequence[str]) -> tuple[str, ...]:
        cluster.deployed = (*cluster.deployed, VPC)
        cluster.machines = ()
        return ()

    vars(cluster)["terminate"] = another_up
    with pytest.raises(
        StateError, match="new: Vpc burst; its nodes are terminated, nothing else was deleted"
    ):
        empty(access, plan)
    assert cluster.changes == ["stop", "stop"]
    assert cluster.control.by.endswith(DOWN_ENDED)


def test_down_that_is_refused_before_it_touches_anything_leaves_scaling_as_it_was() -> None:
    """The journal of the head could not be read, and the cluster launched nothing from then on (V3)."""
    cluster = a_cluster()
    access = cluster.place("us-east-1")

    def unread(_: str) -> frozenset[str]:
        assert cluster.control.scaling is Scaling.STOP
        raise StateError("the head does not answer")

    with pytest.raises(StateError, match="the head does not answer"):
        empty(replace(access, launched=unread), plan_of(access, delete_data=False))
    assert cluster.control == Control(scaling=Scaling.RUN)


def test_down_that_is_refused_keeps_a_stop_that_somebody_wrote_meanwhile() -> None:
    cluster = a_cluster()
    access = cluster.place("us-east-1")

    def unread(_: str) -> frozenset[str]:
        cluster.scale(Scaling.STOP, "ada: an audit")
        raise StateError("the head does not answer")

    with pytest.raises(StateError):
        empty(replace(access, launched=unread), plan_of(access, delete_data=False))
    assert cluster.control == Control(scaling=Scaling.STOP, by="ada: an audit")


def test_data_that_nobody_was_shown_is_not_deleted() -> None:
    cluster = Cluster(deployed=(BUCKET, GROUND, DISK))
    other = replace(DISK, name="burst-export", id="vol-2")

    def destroyed(_: object) -> object:
        done = cluster.destroy()
        cluster.deployed = (*cluster.deployed, other)
        return done

    access = replace(cluster.place("us-east-1"), destroy=destroyed)
    with pytest.raises(StateError, match="new: Volume burst-export; the data was not deleted"):
        empty(access, plan_of(access, delete_data=True))
    assert "release" not in cluster.changes


def test_nodes_that_start_after_the_plan_are_named(capsys: Said) -> None:
    cluster = a_cluster()
    access = cluster.place("us-east-1")
    plan = plan_of(access, delete_data=False)
    cluster.machines = (*MACHINES, replace(MACHINES[1], id="i-late"))
    empty(access, plan)
    assert (
        "1 more nodes had started after the plan was shown, and are terminated: i-late\n"
        in capsys.readouterr().err
    )


# --- the jobs -----------------------------------------------------------------------------------
HEADS = [
    ("jobs", Result((), 0, "RUNNING|h200-1a-1|ann\nCOMPLETING|h200-1a-2|ann\nPENDING||bob\n", ""), ["2 running: ann 2", "1 waiting: bob 1"]),
    ("no job", Result((), 0, "", ""), ["none"]),
    ("many users", Result((), 0, "".join(f"PENDING||u{n}\n" for n in range(6)), ""), ["6 waiting: u0 1, u1 1, u2 1, u3 1 and 2 more users"]),
    ("slurmctld is off", Result((), 1, "", "Unable to contact slurm controller"), ["the head does not answer: its jobs are not known (squeue ended with code 1: Unable to contact slurm controller)"]),
    ("an answer that is no queue", Result((), 0, "Welcome\x1b[2J!\n", ""), ["the head does not answer: its jobs are not known (a row of squeue cannot be read: 'Welcome\\x1b[2J!')"]),
    ("no head", StateError("no head of burst runs"), ["the head does not answer: its jobs are not known (no head of burst runs)"]),
    ("no AWS", CloudError(Fault.LOST, "Timeout", "no answer"), ["the head does not answer: its jobs are not known (no answer)"]),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "said"), [row[1:] for row in HEADS], ids=[row[0] for row in HEADS])
def test_jobs_are_counted_by_the_head_or_not_known(answer: Result | GpuclusterError, said: list[str]) -> None:
    asked: list[tuple[str, str]] = []

    def on_head(where: str, argv: Sequence[str], limit_s: float) -> Result:
        assert limit_s <= 30
        asked.append((where, argv[0]))
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert list(jobs_of(on_head).lines()) == said
    assert asked == [("head", "squeue")]


def test_each_waiting_task_of_an_array_is_a_job() -> None:
    """squeue joins the waiting tasks of an array in one row unless it is asked for each: 2,000 tasks were `1 waiting`."""

    def on_head(_where: str, argv: Sequence[str], _limit_s: float) -> Result:
        return Result((), 0, "PENDING||ada\n" * (2000 if "--array" in argv else 1), "")

    assert list(jobs_of(on_head).lines()) == ["2000 waiting: ada 2000"]

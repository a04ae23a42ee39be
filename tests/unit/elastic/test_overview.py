"""The overview of a cluster: each part of it from a state in which it has something to say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_lab_plan, a_plan
from support.clouds import running_cloud
from support.cluster_states import BUSY, NOW, instance, job, living, node, refusal, sight
from support.fleet import Fleet
from support.slurm_model import SlurmModel

from gpucluster import artifacts
from gpucluster.cloud import bundle_status
from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic.abilities import LOSSES, Dependency, Loss
from gpucluster.elastic.events import OrderGiven, Verb
from gpucluster.elastic.inspect import status
from gpucluster.elastic.inspect.head import ReaderClients
from gpucluster.elastic.inspect.overview import overview, text
from gpucluster.elastic.model import LaunchTrial
from gpucluster.plan import codec, names
from gpucluster.plan.messages import HeldBundle
from gpucluster.plan.model import Budget

ONE, TWO = "1" * 64, "2" * 64
READY = Published(bundle=ONE, ready=True)
BUDGET = Budget(monthly=100_000_000, warn_at=80_000_000, stop_scaling_at=95_000_000)
PAUSED = OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ada", words="a new driver")


def test_dry_run_that_ec2_refuses_is_shown() -> None:
    trials = {
        "h200: spot p5en.48xlarge in us-east-2a": LaunchTrial(
            at=NOW - 180, words="UnauthorizedOperation: no"
        ),
        "h200: spot p5en.48xlarge in us-east-2b": LaunchTrial(at=NOW - 60),
        "h200: spot p4d.24xlarge in us-east-2b": LaunchTrial(at=NOW - 60, words="of a plan of before"),
    }
    shown = overview(replace(sight(a_plan()), trials=trials), ONE, READY)
    assert [(one.offer, one.words) for one in shown.tried] == [
        ("h200: spot p5en.48xlarge in us-east-2a", "UnauthorizedOperation: no"),
        ("h200: spot p5en.48xlarge in us-east-2b", ""),
    ]
    assert shown.offers == 6
    assert [line for line in text(shown, NOW).splitlines() if "refused" in line] == [
        "  refused   h200: spot p5en.48xlarge in us-east-2a: UnauthorizedOperation: no, 13:57:00 UTC, 3 min ago, in a dry run"
    ]


def test_busy_cluster_has_each_part_in_one_line() -> None:
    moment = sight(
        replace(a_plan(), budget=BUDGET),
        *living("h200-2a-1", "h200-2a-2", ago=3600.0),
        *refusal(2, ("h200-2b-1",), 50.0, "InsufficientInstanceCapacity"),
        (30.0, PAUSED),
        nodes=(
            node("h200-2a-1", BUSY),
            node("h200-2a-2", f"{BUSY} DRAIN", reason="a person's words", reason_by="ada"),
            node("h200-2b-1", "IDLE CLOUD POWERED_DOWN DRAIN", reason="gpucluster: no h200 in us-east-2b"),
        ),
        jobs=(
            job(40, "h200-2a-1"),
            job(42, reason="Priority"),
            job(43, reason="Priority", submitted_at=NOW - 900),
        ),
        instances=(instance(0, 3600.0), instance(1, 3600.0)),
    )
    shown = overview(moment, ONE, READY)
    assert text(shown, NOW).splitlines() == [
        "burst: 111111111111 is applied",
        "  pools     h200: 2 of 16 up; launches stop: paused by ada: a new driver",
        "  refused   spot p5en.48xlarge in us-east-2b: InsufficientInstanceCapacity, again 14:00:40 UTC, in 40 s",
        "  draining  h200-2a-2: a person's words",
        "  spending  51.96 USD of 100.00 USD in 2026-11, now 52.00 USD an hour",
        "  running   1 job",
        "  waiting   2 jobs: paused; gpucluster why 43 -c burst",
    ]
    assert shown.settled


@pytest.mark.parametrize(
    ("applied", "of", "line"),
    [
        (ONE, Published(bundle=TWO, detail="the agent has not read the published bundle yet"), "111111111111 is applied, 222222222222 is published"),
        ("", Published(bundle=TWO), "no bundle is applied, 222222222222 is published"),
        (ONE, Published(bundle=TWO, refused="slurmctld: bad line"), "  bundle    222222222222 is refused: slurmctld: bad line"),
        (ONE, Published(unread="the published bundle cannot be read: AccessDenied"), "the published bundle cannot be read: AccessDenied"),
        (ONE, Published(bundle=ONE, detail="waiting for munge"), "  head      waiting for munge"),
        (ONE, Published(bundle=ONE, unread="the agent's status cannot be read: NoSuchKey"), "the agent's status cannot be read"),
    ],
)  # fmt: skip
def test_bundle_that_is_not_in_use_is_told(applied: str, of: Published, line: str) -> None:
    shown = overview(sight(a_plan()), applied, of)
    assert line in text(shown, NOW)
    assert not shown.settled


def test_held_bundle_halt_and_missing_daemon_are_told() -> None:
    held = HeldBundle(bundle=TWO, nodes=("h200-2a-1",), waits_for="it waits for job 41")
    moment = sight(a_plan(), held=held, halted="launches are stopped, by down")
    shown = text(overview(replace(moment, daemon=False), ONE, replace(READY, bundle=TWO)), NOW)
    assert "  bundle    it waits for job 41: gpucluster bundle show -c burst" in shown
    assert "  head      gpucluster-elastic does not answer on this machine: it launches nothing" in shown
    assert "  halted    launches are stopped, by down" in shown


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (
            "AWS.SimpleQueueService.NonExistentQueue: no",
            "; run `pulumi up --refresh --stack burst`",
        ),
        ("AccessDenied: no", ""),
    ],
)
def test_silent_queue_is_told(error: str, step: str) -> None:
    """A deleted queue was one line of the daemon's log, and `status` looked healthy."""
    moment = sight(a_plan(), lost={Dependency.QUEUE: Loss(since=NOW - 60, words=error)})
    row, since = LOSSES[Dependency.QUEUE], "since 13:59:00 UTC, 60 s ago"
    line = f"  lost      the daemon cannot read the queue of interruption notices, {since} ({error}): {row.stops}; {row.still(row.denied)}{step}"
    assert line in text(overview(moment, ONE, READY), NOW).splitlines()


def test_waiting_tasks_of_an_array_are_jobs() -> None:
    """An array of 2,000 tasks was shown as one waiting job, after two jobs of another cause."""
    jobs = (job(41, reason="Dependency", tasks=2000), *(job(n, reason="JobHeldUser") for n in (42, 43)))
    lines = text(overview(sight(a_plan(), jobs=jobs), ONE, READY), NOW).splitlines()
    assert lines[-2:] == [
        "  waiting   2000 jobs: dependency; gpucluster why 41 -c burst",
        "            2 jobs: held; gpucluster why 42 -c burst",
    ]


def test_slurmctld_without_an_answer_leaves_the_rest_unknown() -> None:
    moment = sight(a_plan())
    shown = overview(replace(moment, observation=replace(moment.observation, slurm=None)), ONE, READY)
    assert (shown.pools, shown.spending, shown.unanswered) == ((), None, "slurmctld")
    assert "slurmctld does not answer: nodes, jobs and costs are not known" in text(shown, NOW)


def test_status_without_ec2_shows_what_slurm_knows_and_what_stops() -> None:
    """While EC2 failed, `status` told nothing, and called EC2's own error silence."""
    moment = sight(a_plan())
    lost = {Dependency.EC2: Loss(since=NOW - 120, words="UnauthorizedOperation: no")}
    shown = overview(
        replace(moment, observation=replace(moment.observation, cloud=None, lost=lost)), ONE, READY
    )
    whole = overview(moment, ONE, READY)
    assert (shown.pools, shown.spending, shown.waiting) == (whole.pools, whole.spending, whole.waiting)
    (line,) = shown.lost
    assert line in text(shown, NOW)
    assert "UnauthorizedOperation: no" in line
    assert "launches, terminates and powers down nothing" in line


def write_status(folder: Path, **values: object) -> None:
    (folder / names.SITE_STATUS).write_text(json.dumps(values))


def test_folder_of_an_existing_host_has_the_bundle_and_the_status(tmp_path: Path) -> None:
    assert bundle_status.of_folder(tmp_path).unread.startswith("the published bundle cannot be read: ")
    (tmp_path / names.BUNDLE_KEY).write_bytes(b"bundle")
    one = artifacts.digest(b"bundle")
    assert bundle_status.of_folder(tmp_path).unread.startswith("the agent's status cannot be read: ")
    write_status(tmp_path, bundle="an earlier one", ready=True, refused="words")
    assert bundle_status.of_folder(tmp_path) == Published(
        bundle=one, detail="the agent has not read the published bundle yet"
    )
    write_status(tmp_path, bundle=one, ready=False, detail="the new bundle", refused="words")
    assert bundle_status.of_folder(tmp_path) == Published(
        bundle=one, detail="the new bundle", refused="words"
    )
    (tmp_path / names.SITE_STATUS).write_text("{")
    assert bundle_status.of_folder(tmp_path).unread.startswith("the agent's status cannot be read: ")


@pytest.mark.loopback
def test_bucket_has_the_bundle_and_the_status() -> None:
    with running_cloud() as cloud:
        s3 = cloud.client("s3")
        s3.create_bucket(Bucket="burst-0")
        missing = bundle_status.of_bucket("us-east-1", "burst-0", lambda: s3)
        assert missing.unread.startswith("the published bundle cannot be read: ")
        s3.put_object(Bucket="burst-0", Key=names.BUNDLE_KEY, Body=b"bundle")
        status_of = {"bundle": artifacts.digest(b"bundle"), "ready": True}
        s3.put_object(Bucket="burst-0", Key=names.STATUS_KEY, Body=json.dumps(status_of).encode())
        found = bundle_status.of_bucket("us-east-1", "burst-0", lambda: s3)
        assert found == Published(bundle=artifacts.digest(b"bundle"), ready=True)


def test_program_of_the_head_prints_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet(a_plan(), tmp_path)
    tree = tmp_path / "bundles" / ONE
    tree.mkdir(parents=True)
    (tree / names.PLAN_FILE).write_text(codec.dumps(fleet.plan))
    (tree / names.BINDINGS_FILE).write_text(codec.dumps(fleet.bindings))
    (tmp_path / "bundle").symlink_to(tree)
    clients = ReaderClients(slurm=fleet.slurm, cloud=fleet.cloud, control=fleet.control)
    options = [f"--bundle={tmp_path / 'bundle'}", f"--journal={tmp_path / 'journal.sqlite'}"]
    assert status.main(options, clients, lambda *_: READY) == 0
    assert capsys.readouterr().out.startswith("burst: 111111111111 is applied\n")
    assert status.main([*options, "--json"], clients, lambda *_: READY) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["applied"], answer["settled"], answer["pools"][0]["nodes"]) == (ONE, True, {"off": 32})


def test_head_without_a_bundle_tells_what_its_agent_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status --wait` waited to its time limit for a first bundle that the head refuses."""
    where = [f"--bundle={tmp_path / 'bundle'}", f"--machine={tmp_path / 'machine.json'}"]
    assert status.main(where) == 2
    assert "plan.json cannot be read" in capsys.readouterr().err
    user_data = {"cluster": "burst", "region": "us-east-2", "bucket": "burst-0", "key": "k", "role": "head"}
    (tmp_path / "machine.json").write_text(json.dumps(user_data))
    damaged = Published(bundle=TWO, refused="the bundle 222222222222 is damaged")
    looked: list[tuple[str, str]] = []

    def look(region: str, bucket: str) -> Published:
        looked.append((region, bucket))
        return damaged

    assert status.main(where, None, look) == 0
    assert looked == [("us-east-2", "burst-0")]
    assert capsys.readouterr().out.splitlines() == [
        "burst: no bundle is applied, 222222222222 is published",
        "  bundle    222222222222 is refused: the bundle 222222222222 is damaged",
        "  head      gpucluster-elastic does not answer on this machine: it launches nothing",
        "            slurmctld does not answer: nodes, jobs and costs are not known",
    ]
    assert status.main([*where, "--json"], None, look) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["settled"], answer["published"]["refused"]) == (False, damaged.refused)


def test_existing_hosts_have_no_spending(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = a_lab_plan()
    (tmp_path / names.PLAN_FILE).write_text(codec.dumps(plan))
    slurm = SlurmModel(plan, lambda kind, hosts: None)
    for one in slurm.nodes.values():
        one.flags.clear()
    clients = ReaderClients(slurm=slurm, cloud=None, control=None)
    where = [f"--bundle={tmp_path}", f"--journal={tmp_path / 'none'}"]
    assert status.main(where, clients, lambda *_: READY) == 0
    shown = capsys.readouterr().out
    assert " up" in shown
    assert "spending" not in shown

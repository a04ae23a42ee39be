"""The instances of the daemon's journal, read from a real journal by the program that runs on the head, and their check."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpucluster.checks import daemon_journal, remedies
from gpucluster.checks.check import CheckStatus, QueryOutput
from gpucluster.checks.cloud import SearchScope
from gpucluster.checks.cloud_journal import JournalFound, JournalWant, evaluate_journal, parse_journal
from gpucluster.checks.daemon_journal import LivingInstance
from gpucluster.cloud.limits import UNSEEN_S
from gpucluster.cloud.port import LaunchSpec
from gpucluster.elastic import events
from gpucluster.elastic import journal as journals
from gpucluster.elastic.events import Event
from gpucluster.elastic.journal import Journal
from gpucluster.plan import names
from gpucluster.plan.model import Market

WANT = JournalWant(place=SearchScope(cluster="burst"))
SPEC = LaunchSpec(
    machine="p5en.48xlarge",
    market=Market.SPOT,
    zone="us-east-2a",
    subnet_id="subnet-1",
    template_id="lt-1",
    template_version=1,
)


def request(number: int, *slots: str) -> events.LaunchRequest:
    return events.LaunchRequest(
        id=f"r{number}", token=f"t{number}", pool="h200", source=0, slots=slots, spec=SPEC
    )


def read(path: Path, *happened: Event) -> QueryOutput:
    """What the program on the head prints of a journal with these events."""
    journal = Journal.open(path, 0.0)
    journal.append(tuple(events.Entry(at=time.time() - 600.0, event=one) for one in happened))
    journal.close()
    program = daemon_journal.QUERY.argv[-1].replace(names.JOURNAL, str(path))
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    return QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def test_instances_live_until_their_end_is_requested_or_seen(tmp_path: Path) -> None:
    found = daemon_journal.parse(
        read(
            tmp_path / "journal.sqlite",
            events.LaunchRequested(request=request(1, "a-1", "a-2", "a-3")),
            events.LaunchDone(request="r1", instances=("i-1", "i-2", "i-3")),
            events.InstanceRunning(slot="a-1", instance="i-1"),
            events.NodeRegistered(slot="a-2", instance="i-2"),
            events.LaunchRequested(request=request(2, "a-4")),
            events.LaunchRequested(request=request(3, "a-5")),
            events.LaunchRefused(request="r3", key=None, words="no capacity", until=0.0),
            events.InstanceAdopted(slot="a-6", instance="i-6", machine="p5en.48xlarge", market=Market.SPOT),
            events.TerminationRequested(instances=("i-2",), words="idle"),
            events.InstanceGone(slot="a-6", instance="i-6"),
            events.InstanceRunning(slot="a-6", instance="i-6"),
        )
    )
    assert (found.open, found.launched) == ({"r2"}, {"i-1", "i-2", "i-3", "i-6"})
    assert {name: one.slot for name, one in found.living.items()} == {"i-1": "a-1", "i-3": ""}
    assert all(600.0 <= one.age_s < 6000.0 for one in found.living.values())


def test_instances_of_pruned_events_are_those_of_the_snapshot(tmp_path: Path) -> None:
    """An instance that lives for longer than events are kept would be in no list, and `down` would not know it."""
    path = tmp_path / "journal.sqlite"
    journal = Journal.open(path, 0.0)
    happened = (
        events.LaunchRequested(request=request(1, "a-1", "a-2", "a-3")),
        events.LaunchDone(request="r1", instances=("i-1", "i-2", "i-3")),
        events.InstanceRunning(slot="a-1", instance="i-1"),
        events.InstanceRunning(slot="a-2", instance="i-2"),
        events.SparesLaunched(pool="h200", source=0, instances=("i-4",)),
        events.LaunchRequested(request=request(2, "a-4")),
        events.TerminationRequested(instances=("i-2",), words="idle"),
        *(events.NodeIdle(slot="a-1"),) * journals.SNAPSHOT_EVERY,
    )
    journal.append(tuple(events.Entry(at=5.0, event=one) for one in happened))
    journal.tidy(10.0 + journals.KEPT_S)
    assert len(journals.read_only(path)) == 1
    journal.close()
    found = daemon_journal.parse(
        read(
            path,
            events.LaunchRequested(request=request(3, "a-5")),
            events.InstanceGone(slot="a-3", instance="i-3"),
        )
    )
    assert (found.open, found.launched) == ({"r2", "r3"}, {"i-1", "i-2", "i-3", "i-4"})
    assert {name: one.slot for name, one in found.living.items()} == {"i-1": "a-1", "i-4": ""}


def test_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    program = daemon_journal.QUERY.argv[-1].replace(names.JOURNAL, str(tmp_path / "none"))
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the daemon's journal cannot be read: ")


NODE = {"i-1": LivingInstance(slot="a-1", age_s=UNSEEN_S + 1)}
RESTART, POWER_DOWN = remedies.restart("gpucluster-elastic"), "scontrol update nodename=a-1 state=power_down"


@pytest.mark.parametrize(
    ("living", "states", "found", "remedy"),
    [
        (NODE, {"i-1": "running"}, "", ""),
        (NODE, {"i-1": "shutting-down"}, "", ""),
        ({}, {"i-9": "running"}, "", ""),
        ({"i-1": LivingInstance(slot="", age_s=UNSEEN_S)}, {}, "", ""),
        (NODE, {"i-1": "terminated"}, "a-1 (i-1) is terminated", f"on the head: {RESTART}"),
        (NODE, {}, "a-1 (i-1) is not listed by EC2", f"on the head: {POWER_DOWN}"),
        ({"i-1": LivingInstance(slot="", age_s=UNSEEN_S + 1)}, {}, "i-1 is not listed by EC2", f"on the head: {RESTART}"),
        ({**NODE, "i-2": LivingInstance(slot="a-2", age_s=1.0)}, {"i-2": "terminated"}, "a-1 (i-1) is not listed by EC2, a-2 (i-2) is terminated", f"on the head: {POWER_DOWN}; {RESTART}"),
    ],
    ids=["it runs", "it shuts down", "no instance in the journal", "so young that EC2 may not list it", "ended", "not listed", "never listed", "two"],
)  # fmt: skip
def test_instance_of_the_journal_is_in_ec2(
    living: dict[str, LivingInstance], states: dict[str, str], found: str, remedy: str
) -> None:
    result = evaluate_journal(JournalFound(living=living, states=states), WANT)
    assert result.verdict is (CheckStatus.FAIL if found else CheckStatus.PASS)
    assert (result.found, result.remedy) == (
        found or f"EC2 has the {len(living)} instances of the daemon's journal",
        remedy,
    )


def test_instance_in_one_of_two_lists_is_listed() -> None:
    def listing(*ids: str) -> QueryOutput:
        items = [{"InstanceId": one, "State": {"Name": "running"}} for one in ids]
        return QueryOutput(code=0, stdout=json.dumps({"Reservations": [{"Instances": items}]}))

    entry = {"id": "i-1", "slot": "a-1", "age_s": 9000.0}
    journal = QueryOutput(code=0, stdout=json.dumps({"open": [], "launched": ["i-1"], "living": [entry]}))
    for got in ((listing("i-1"), journal, listing()), (listing(), journal, listing("i-1"))):
        assert evaluate_journal(parse_journal(got), WANT).verdict is CheckStatus.PASS
    assert evaluate_journal(parse_journal((listing(), journal, listing())), WANT).verdict is CheckStatus.FAIL

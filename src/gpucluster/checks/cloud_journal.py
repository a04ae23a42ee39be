"""Check that EC2 has each instance that lives by the daemon's journal."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpucluster.checks import daemon_journal, json_fields, remedies
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput
from gpucluster.checks.cloud import CloudDifference, SearchScope, instances_of, judged
from gpucluster.checks.daemon_journal import LivingInstance
from gpucluster.cloud.limits import UNSEEN_S

ENDED = "terminated"  # the daemon sees the end of an instance while it shuts down
_RESTART = remedies.restart("gpucluster-elastic")
_POWER_DOWN = "scontrol update nodename={slot} state=power_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalWant:
    """The place in which the instances of the journal must be."""

    place: SearchScope


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFound:
    """The living instances of the journal, and the state of each instance that EC2 lists."""

    living: Mapping[str, LivingInstance]
    states: Mapping[str, str]


def query_journal(want: JournalWant) -> tuple[Query, ...]:
    """Two lists: one answer of EC2 may lack an instance that lives (T21)."""
    listing = Query(at=Location.CLOUD, argv=("instances", *want.place.words()))
    return (listing, daemon_journal.QUERY, listing)


def parse_journal(got: tuple[QueryOutput, ...]) -> JournalFound:
    """States from the JSON of DescribeInstances, and the living instances from the journal."""
    before, journal, after = got
    living = daemon_journal.parse(journal).living
    return JournalFound(living=living, states={**_states(before), **_states(after)})


def evaluate_journal(found: JournalFound, want: JournalWant) -> CheckResult:
    """The daemon records the end of an instance that EC2 lists as ended. It keeps one that EC2 does not list while its node is up."""
    expected = f"EC2 has the {len(found.living)} instances of the daemon's journal"
    result = judged(_faults(found), want.place.cluster, expected, expected)
    return replace(result, remedy=f"on the head: {result.remedy}") if result.remedy else result


def _states(listing: QueryOutput) -> dict[str, str]:
    return {
        json_fields.text(one, "InstanceId"): json_fields.text(one, "State", "Name")
        for one in instances_of(listing)
    }


def _faults(found: JournalFound) -> Iterator[CloudDifference]:
    for name, entry in found.living.items():
        about = f"{entry.slot} ({name})" if entry.slot else name
        if found.states.get(name) == ENDED:
            yield CloudDifference(words=f"{about} is terminated", step=_RESTART)
        elif name not in found.states and entry.age_s > UNSEEN_S:
            step = _POWER_DOWN.format(slot=entry.slot) if entry.slot else _RESTART
            yield CloudDifference(words=f"{about} is not listed by EC2", step=step)

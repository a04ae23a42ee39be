"""Check that slurmctld's partitions are those of the plan: state, nodes, and every setting that scontrol shows and can change.

The text of scontrol is read, because its JSON does not name the default partition (24.11). Only root names partitions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.checks import setting_values
from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.slurm import hostlist
from gpucluster.text import short

_NAME, _NODES = "partitionname", "nodes"
_DEFAULTS = {  # scontrol's word for a setting that slurm.conf does not have; man slurm.conf, and 24.11.5 and 26.05.5 observed
    "allowgroups": "all",
    "allowaccounts": "all",
    "denyaccounts": "",
    "allowqos": "all",
    "denyqos": "",
    "allocnodes": "all",
    "default": "no",
    "defaulttime": "",
    "defmempernode": "unlimited",
    "disablerootjobs": "no",
    "exclusive": "no",
    "exclusivetopo": "no",
    "exclusiveuser": "no",
    "gracetime": "0",
    "hidden": "no",
    "jobdefaults": "",
    "lln": "no",
    "maxcpuspernode": "unlimited",
    "maxcpuspersocket": "unlimited",
    "maxmempernode": "unlimited",
    "maxnodes": "unlimited",
    "maxtime": "unlimited",
    "minnodes": "0",
    "overtimelimit": "",
    "oversubscribe": "no",
    "powerdownonidle": "no",
    "priorityjobfactor": "1",
    "prioritytier": "1",
    "qos": "",
    "reqresv": "no",
    "resumetimeout": "global",
    "rootonly": "no",
    "state": "up",
    "suspendtime": "global",
    "suspendtimeout": "global",
    "tresbillingweights": "",
}
_SHOWN_IF_SET = ("defmempercpu", "maxmempercpu", "tresbillingweights")
_OF_JOBS = ("defcpupergpu", "defmempergpu")  # words of slurm.conf that scontrol shows in JobDefaults
_KEEPS_JOBS_OUT = frozenset(
    [
        "state",
        "allowgroups",
        "allowaccounts",
        "denyaccounts",
        "allowqos",
        "denyqos",
        "allocnodes",
        "maxnodes",
        "minnodes",
        "qos",
        "reqresv",
        "rootonly",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWant:
    """A partition of the plan. `values`: the words of its line in slurm.conf, with keys in small letters, without its nodes."""

    name: str
    nodes: tuple[str, ...]
    values: dict[str, str]

    @property
    def default(self) -> bool:
        """Whether it takes jobs that name no partition."""
        return setting_values.same(self.values.get("default", "no"), "yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """All partitions of the plan."""

    partitions: tuple[PartitionWant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition as slurmctld shows it. `values`: key in small letters -> scontrol's word."""

    name: str
    nodes: frozenset[str]
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong. `key`: the setting; `out`: no job of ours can start."""

    partition: str
    key: str
    words: str
    out: bool


def query_partitions(_want: Partitions) -> tuple[Query, ...]:
    return (Query(argv=("scontrol", "--all", "--oneliner", "show", "partition")),)


def parse_partitions(got: tuple[QueryOutput, ...]) -> tuple[Partition, ...]:
    """One line for each partition; ParseError for a line without a name or with nodes that are no hostlist."""
    return tuple(_partition(line) for line in got[0].text().splitlines() if line.strip())


def evaluate_partitions(found: tuple[Partition, ...], want: Partitions) -> CheckResult:
    """Culprits: a partition that takes no jobs by its name, another setting as `NAME:KEY`."""
    seen = {partition.name: partition for partition in found}
    wrong = [problem for one in want.partitions for problem in _problems(seen.get(one.name), one)]
    wrong += [
        _Problem(name, "name", f"{short(name, 40)} is not in the plan", False)
        for name in sorted(seen.keys() - {one.name for one in want.partitions})
    ]
    expected = ", ".join(f"{one.name} UP with {len(one.nodes)} nodes" for one in want.partitions)
    if not wrong:
        return passed(expected)
    culprits = (one.partition if one.out else f"{one.partition}:{one.key}" for one in wrong)
    words = listed([one.words for one in wrong], 4)
    return failed(words, expected, tuple(dict.fromkeys(culprits)), _remedy(wrong, want))


def _partition(line: str) -> Partition:
    values = dict(setting_values.tokens(line))
    name = values.pop(_NAME, "")
    if not name:
        raise ParseError(f"scontrol show partition printed {short(line, 60)!r}")
    if values.get("exclusive", "").lower() == "node":  # 26.05's word
        values |= {"exclusive": "no", "oversubscribe": "exclusive"}
    if values.get("exclusive", "").lower() == "user":  # the same
        values |= {"exclusive": "no", "exclusiveuser": "yes"}
    listed_nodes = values.pop(_NODES, "")
    try:
        nodes = hostlist.expand_slurm("" if listed_nodes == "(null)" else listed_nodes)
    except ValueError as error:
        raise ParseError(f"the nodes of {short(name, 40)}: {short(str(error), 80)}") from error
    return Partition(name=name, nodes=frozenset(nodes), values=values)


def _problems(found: Partition | None, want: PartitionWant) -> Iterator[_Problem]:
    if found is None:
        yield _Problem(want.name, "name", f"{want.name} is missing", True)
        return
    if found.nodes != frozenset(want.nodes):
        words = f"{want.name} has {len(found.nodes)} nodes, not {len(want.nodes)}"
        yield _Problem(want.name, _NODES, words, True)
    for key, wanted in _wanted(want.values, found.values).items():
        shown = found.values.get(key, "")
        if not setting_values.same(shown, wanted):
            yield _Problem(want.name, key, _words(want.name, key, shown, wanted), key in _KEEPS_JOBS_OUT)


def _wanted(line: Mapping[str, str], shown: Mapping[str, str]) -> dict[str, str]:
    """What scontrol must show for the line of slurm.conf. A word that no version of ours shows is not compared."""
    defaults = {key: word for key, word in _DEFAULTS.items() if key in shown}
    asked = {key: word for key, word in line.items() if key in shown or key in _SHOWN_IF_SET}
    jobs = [f"{key}={line[key]}" for key in _OF_JOBS if key in line]
    return {**defaults, **asked, **({"jobdefaults": ",".join(jobs)} if jobs else {})}


def _words(name: str, key: str, shown: str, wanted: str) -> str:
    if key == "state":
        return f"{name} is {short(shown, 30)}"
    if key == "default":
        return f"{name} is {'' if setting_values.same(shown, 'yes') else 'not '}the default"
    return f"{name} has {key} {short(shown, 60) or 'unset'}, not {short(wanted, 60) or 'unset'}"


def _remedy(wrong: list[_Problem], want: Partitions) -> str:
    """State and default are set at once. For anything else slurmctld reads its file again."""
    commands = [f"scontrol update partition={one.partition} state=up" for one in wrong if one.key == "state"]
    if any(one.key == "default" for one in wrong):
        commands += [
            f"scontrol update partition={one.name} default=yes" for one in want.partitions if one.default
        ]
    if any(one.key not in ("state", "default") for one in wrong) or not commands:
        commands.insert(0, "scontrol reconfigure")
    return "on {machine}: " + "; ".join(commands)

"""Check the shared folders as a job of an ordinary user sees them: slurmd, and each job, may have a mount namespace of their own."""

from dataclasses import dataclass

from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
)
from gpucluster.checks.mounts import Mounted, MountWant, mount_problems, mount_table
from gpucluster.text import short

_TABLE = 'sed "s/^/$SLURMD_NODENAME /" /proc/self/mountinfo'


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMountsWant:
    """The mounts that a job sees on each of this number of nodes."""

    mounts: tuple[MountWant, ...]
    nodes: int


def query_mounts(_want: JobMountsWant) -> tuple[Query, ...]:
    return (Query(at=Location.STEP, argv=("--", "sh", "-c", _TABLE), limit_s=30),)


def parse_mounts(got: tuple[QueryOutput, ...]) -> dict[str, dict[str, Mounted]]:
    """Node -> path -> the mount there."""
    lines: dict[str, list[str]] = {}
    for line in got[0].text().splitlines():
        node, space, rest = line.partition(" ")
        if not space:
            raise ParseError(f"the step printed {short(line, 80)!r}")
        lines.setdefault(node, []).append(rest)
    return {node: mount_table("\n".join(rows)) for node, rows in lines.items()}


def evaluate_mounts(found: dict[str, dict[str, Mounted]], want: JobMountsWant) -> CheckResult:
    """Culprits are the nodes."""
    paths = ", ".join(mount.path for mount in want.mounts)
    expected = f"a job on {want.nodes} nodes sees {paths} with the plan's options"
    bad = {
        node: [words for mount in want.mounts for words in mount_problems(table.get(mount.path), mount)]
        for node, table in found.items()
    }
    bad = {node: words for node, words in bad.items() if words}
    if bad:
        return failed(
            listed([f"{node}: {', '.join(words)}" for node, words in bad.items()], 3), expected, tuple(bad)
        )
    if len(found) != want.nodes:
        return failed(f"{len(found)} nodes answered", expected)
    return passed(expected)

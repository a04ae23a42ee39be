"""Read slurmdbd's records, and make the changes of a difference, by sacctmgr."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import Accounting
from gpucluster.shell import Result
from gpucluster.slurm.accounts import read
from gpucluster.slurm.accounts.diff import Change, Difference, difference, new_qos
from gpucluster.slurm.accounts.records import Records
from gpucluster.slurm.accounts.wanted import wanted
from gpucluster.text import short

Run = Callable[[Sequence[str]], Result]  # without an error for an exit code
_NOTHING = ("Nothing new added", "Already existing", "Nothing modified")  # another run has made the change

_GO_ON = "correct the cause, then run `gpucluster accounts apply NAME` again: it goes on with what is left"


class AccountsError(GpuclusterError):
    """slurmdbd cannot be read, or refuses a change. The changes before it are made; the next run goes on after them."""


def month_of(now_s: float) -> str:
    """Return the calendar month (UTC) of a Unix time: `2026-11`."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m")


def found(run: Run, cluster: str) -> Records:
    """Return the records of `cluster`. AccountsError if slurmdbd does not answer."""
    answers = dict[str, str]()
    for name, argv in read.commands(cluster).items():
        result = run(argv)
        if result.code != 0:
            raise AccountsError(f"slurmdbd does not answer: {_said(result)}")
        answers[name] = result.stdout
    return read.records(answers, cluster)


def compare(run: Run, accounting: Accounting, cluster: str, now_s: float) -> Difference:
    """Return what differs between the plan and slurmdbd at this time (Unix)."""
    return difference(wanted(accounting, cluster, month_of(now_s)), found(run, cluster), cluster)


def add_missing_qos(run: Run, accounting: Accounting, cluster: str) -> None:
    """Add the QOS of the plan by name. slurmctld ends if the QOS of a partition is unknown; it adds the TRES of limits itself."""
    result = run(read.commands(cluster)["qos"])
    if result.code != 0:
        raise AccountsError(f"slurmdbd does not answer: {_said(result)}")
    known = read.qos_names(result.stdout)
    missing = [one.name for one in accounting.qos if one.name not in known]
    apply(run, new_qos(missing, cluster))


def apply(run: Run, changes: Sequence[Change]) -> None:
    """Make the changes. AccountsError for the first one that slurmdbd refuses."""
    for made, change in enumerate(changes):
        for command in change.commands:
            result = run(command)
            if result.code != 0 and not any(word in result.stdout + result.stderr for word in _NOTHING):
                so_far = f"{made} of {len(changes)} changes are made"
                raise AccountsError(f"{change.subject}: {_said(result)}; {so_far}", next_step=_GO_ON)


def _said(result: Result) -> str:
    return short(result.stderr.strip() or result.stdout.strip() or f"exit code {result.code}", 300)

"""Check that no warning of `gpucluster check` is accepted for longer than its spec says. The spec and the day are given."""

from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, Query, QueryOutput, listed, passed, warned


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptances:
    """The entries of `accept` with a last day. `first`: the earliest one. `ended`: the warnings that are shown again today."""

    file: str
    count: int
    first: str
    ended: tuple[str, ...]


def query_acceptances(_want: Acceptances) -> tuple[Query, ...]:
    return ()


def parse_acceptances(_got: tuple[QueryOutput, ...]) -> None:
    """Nothing is asked."""


def evaluate_acceptances(_found: None, want: Acceptances) -> CheckResult:
    expected = f"no warning about {want.file} whose acceptance has ended"
    if want.ended:
        remedy = f"on your computer: change what the warning names, or write a later `until` in {want.file}, and have it reviewed"
        return warned(listed(want.ended), expected, remedy)
    plural = "s" if want.count > 1 else ""
    return passed(
        f"{want.file} accepts {want.count} warning{plural}, until {want.first} at the earliest", expected
    )

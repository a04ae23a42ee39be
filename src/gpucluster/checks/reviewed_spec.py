"""Check that the bundle that is published is of the spec that was given: the reviewed one."""

from dataclasses import dataclass
from enum import StrEnum

from gpucluster.checks.check import (
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    passed,
    unknown,
    warned,
)
from gpucluster.plan import names, spec_source
from gpucluster.plan.spec_source import MOST_BYTES, SpecSource
from gpucluster.text import short

QUERY = ("head", f"--bytes={MOST_BYTES + 1}", "--", f"{names.BUNDLE_DIR}/{names.SOURCE_FILE}")
_HERE = "on your computer: "


class Order(StrEnum):
    """How the commit of the published spec lies to that of the given one, in the git repository of the spec."""

    OLDER = "older"
    NEWER = "newer"
    UNKNOWN = "unknown"  # the same commit, another branch, or no commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """The spec that was given, and what the published bundle says of its own.

    `published`: None if no bucket has the bundle, or if it does not say it; then the one that the head has applied counts.
    """

    file: str
    given: SpecSource
    published: SpecSource | None
    place: str  # of the bundle, and since when it is there
    order: Order
    publish: str  # what publishes the given spec
    commit: str  # what comes before, if it has changes that are in no commit
    newer: str  # what gets the published spec, if it is newer


def query_reviewed(want: Reviewed) -> tuple[Query, ...]:
    return () if want.published is not None else (Query(argv=QUERY),)


def parse_reviewed(got: tuple[QueryOutput, ...]) -> SpecSource | None:
    """What the bundle of the head says of its spec; None if it is not asked."""
    if not got:
        return None
    text = got[0].text()
    try:
        return spec_source.read(text.encode())
    except ValueError as error:
        raise ParseError(f"{names.SOURCE_FILE} of the bundle: {short(str(error))}") from error


def evaluate_reviewed(applied: SpecSource | None, want: Reviewed) -> CheckResult:
    """Another text that gives the same plan is no fault. `cfg.bundle` compares what is applied with what is published."""
    published, given = want.published or applied, want.given
    expected = f"the spec {want.file}: {given.name}"
    if published is None:
        return unknown("the bundle does not say of which spec it is", expected)
    found = f"{want.place} is of {published.name}"
    if published.plan == given.plan and (published.dirty or given.dirty):
        remedy = f"{_HERE}{want.commit}, then {want.publish}" if given.dirty else _HERE + want.publish
        return warned(f"{found}; nobody reviewed what is in no commit", expected, remedy)
    if published.plan == given.plan:
        text = "" if published.spec == given.spec else ", another text with the same plan"
        return passed(f"{found}{text}", expected)
    if published.spec == given.spec:
        return _same_spec(found, published, want)
    if want.order is Order.NEWER:
        return failed(f"{found}, which is newer than {want.file}", expected, remedy=_HERE + want.newer)
    words = "an older spec" if want.order is Order.OLDER else "another spec"
    return failed(f"{found}, {words}: {want.file} is not applied", expected, remedy=_HERE + want.publish)


def _same_spec(found: str, published: SpecSource, want: Reviewed) -> CheckResult:
    """The plan depends on nothing but the spec and our version."""
    mine = want.given.version
    if published.version == mine:
        return failed(
            f"{found}, but its plan is another one", f"the plan of {want.file}", remedy=_HERE + want.publish
        )
    words = f"{found}; gpucluster {published.version} made its plan, and {mine} makes another one of the same spec"
    remedy = (
        f"{_HERE}compare with gpucluster {published.version}; or, to apply the plan of {mine}: {want.publish}"
    )
    return warned(words, f"the plan of {want.file} by gpucluster {mine}", remedy)

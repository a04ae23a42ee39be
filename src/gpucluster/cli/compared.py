"""Run the Pulumi program of both revisions of `gpucluster diff`, and compare what it declares."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpucluster.cli.output import progress
from gpucluster.errors import GpuclusterError, HostError

if TYPE_CHECKING:
    from pathlib import Path

    from gpucluster.cli.revisions import Side
    from gpucluster.engine.offline.answers import Recording
    from gpucluster.engine.offline.model import Lookup, Planned
    from gpucluster.gitops.model import Compared, Revision, RightChange

    Known = tuple[Path, tuple[Recording, ...]]  # where a side's look-ups are answered, and how
    Asked = tuple[str, Side | None, Known]  # the word for messages, the side, its answers

INSTALL = "in the clone: pip install '.[aws]'"
NO_PROGRAM = "resources are not compared: the program creates no AWS resources for a Kubernetes that exists"


def compared(old: "Side | None", new: "Side | None", *, required: bool) -> "Compared":
    """Compare resources and rights. None is a spec that this side does not have.

    `required`: HostError without the packages of the program; otherwise the result says that nothing was compared.
    """
    from gpucluster.gitops.model import Compared

    revisions = [one.revision for one in (old, new) if one is not None]
    if not all(_declared(one) for one in revisions):
        progress(NO_PROGRAM)
        return Compared(unseen=(NO_PROGRAM,))
    if library := _missing(revisions):
        reason = f"{library} is not installed"
        if required:
            step = f"{INSTALL}; or --no-resources compares the rest"
            raise HostError(f"the Pulumi program of both specs cannot run: {reason}", next_step=step)
        progress(f"resources are not compared: {reason}\n  next: {INSTALL}")
        return Compared(unseen=(f"resources and rights are not compared: {reason}",))
    known = _answers(old, new)
    sides = ("old", old, known[0]), ("new", new, known[1])
    planned = _both(sides, assume=False)
    for side, one in zip(sides, planned, strict=True):
        _warn_open_lookups(side, one)
    from gpucluster.gitops.resources import compare

    resources, unseen = compare(*planned), tuple(_open(*planned))
    same = old is not None and new is not None and old.revision.plan == new.revision.plan
    if same and known[0] == known[1]:
        return Compared(resources=resources, rights=(), unseen=unseen)
    rights, why = _rights(sides)
    return Compared(resources=resources, rights=rights, unseen=(*unseen, *why))


def _declared(revision: "Revision") -> bool:
    """Return whether Pulumi's program can declare resources for this plan."""
    from gpucluster.cli.resources import why_not

    return revision.plan.aws is None or why_not(revision.plan) is None


def _missing(revisions: "Sequence[Revision]") -> str:
    """Return a package of the program that is not installed; empty: there is none, or no revision needs it."""
    from gpucluster.engine.offline.planner import missing

    return (missing() or "") if any(one.plan.aws is not None for one in revisions) else ""


def _answers(old: "Side | None", new: "Side | None") -> "tuple[Known, Known]":
    """Return the recorded answers of each spec. The new answers complete those that the old revision lacks."""
    from gpucluster.engine.offline.answers import merged

    (path, after), (_, before) = _answers_of(new), _answers_of(old)
    return (path, merged(before, after)), (path, after)


def _answers_of(side: "Side | None") -> "Known":
    from pathlib import Path

    from gpucluster.cli.revisions import answers_beside

    return (Path(), ()) if side is None else answers_beside(side.source, side.revision.plan.name)


def _both(sides: "tuple[Asked, Asked]", *, assume: bool) -> "tuple[Planned, Planned]":
    """Declare the resources of both plans in parallel, in one process each."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        old, new = (pool.submit(_planned, side, assume=assume) for side in sides)
        return old.result(), new.result()


def _planned(asked: "Asked", *, assume: bool) -> "Planned":
    """Return the declared resources; none for a plan without a cloud. A look-up without an answer stays open.

    Reason: the comparison must not fail for a look-up that both specs have.
    """
    from gpucluster.cli.resources import planned_of
    from gpucluster.engine.offline.model import Planned

    word, side, (_, answers) = asked
    name = "none" if side is None else side.revision.plan.name
    try:
        planned = None if side is None else planned_of(side.revision.plan, answers, assume=assume)
    except GpuclusterError as error:
        raise type(error)(f"{word}: {error.message}", next_step=error.next_step) from error
    return planned or Planned(project="gpucluster", stack=name, resources=())


def _warn_open_lookups(asked: "Asked", planned: "Planned") -> None:
    from gpucluster.engine.offline.answers import how_to_record, lacking, unanswered

    word, side, (path, answers) = asked
    if side is not None and (questions := lacking(planned, answers)):
        reason = unanswered(side.revision.plan.name, path, questions)
        progress(f"warning[open-look-up] {word}: {reason}: dependent properties are not compared")
        progress(f"  next: {how_to_record(side.source.file)}")


def _open(old: "Planned", new: "Planned") -> Iterator[str]:
    """Return a sentence for each look-up that has no answer: a person left it open, or nobody recorded it."""
    from gpucluster.engine.offline.answers import still_open
    from gpucluster.engine.offline.lookups import sentence

    def named(lookups: "tuple[Lookup, ...]") -> dict[str, str]:
        return {f"{one.token} {one.arguments}": sentence(one.token) for one in lookups}

    found = named(still_open(old)) | named(still_open(new))
    for what in dict.fromkeys(found.values()):
        yield f"{what}, which only `pulumi up` looks up: what depends on it is not compared"


def _rights(sides: "tuple[Asked, Asked]") -> "tuple[tuple[RightChange, ...] | None, tuple[str, ...]]":
    """Compare policies with placeholder names. Without a result, the second value has the reason."""
    from gpucluster.engine.offline import ProgramError
    from gpucluster.gitops.rights import compare_rights

    try:
        return compare_rights(*_both(sides, assume=True)), ()
    except ProgramError as error:
        return None, (f"rights are not compared, because placeholder names do not work: {error.message}",)

"""Helpers of the rules: findings, absent parts, repeated values, and messages that several rules use."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gpucluster.catalog import Catalog
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.part import AbsentError
from gpucluster.spec.problem import Finding, Level, Path, Untrue
from gpucluster.text import quoted

PARTITION = "arn:aws:"


def error(*path: str | int, id: str, message: str) -> Finding:  # noqa: A002 - the word of the message format
    return Finding(path=path, id=id, message=message)


def warning(*path: str | int, id: str, message: str) -> Finding:  # noqa: A002
    return Finding(path=path, id=id, message=message, level=Level.WARNING)


def security_warning(
    *path: str | int,
    id: str,  # noqa: A002
    message: str,
    untrue: Untrue | None = None,
) -> Finding:
    """A warning that is accepted only until a date, and for no reason that is `untrue`."""
    return Finding(path=path, id=id, message=message, level=Level.WARNING, security=True, untrue=untrue)


def advice(*path: str | int, id: str, message: str) -> Finding:  # noqa: A002
    return Finding(path=path, id=id, message=message, level=Level.ADVICE)


def collect(found: Iterator[Finding]) -> list[Finding]:
    findings: list[Finding] = []
    try:
        for finding in found:
            findings.append(finding)  # noqa: PERF402 - findings before an absent part are valid
    except AbsentError:
        pass
    return findings


def parsed(read: Callable[[], Sequence[object]]) -> Sequence[object]:
    try:
        return read()
    except AbsentError:
        return ()


T = TypeVar("T")


def or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except AbsentError:
        return None


def repeated(values: Sequence[str], path: Path, what: str) -> Iterator[Finding]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield error(*path, index, id="repeated", message=f"{what} {quoted(value)} is named twice")


def other_partition(arn: str) -> str | None:
    """Return why an ARN is of no use in the catalog's Regions; None if it is in their partition."""
    if not arn.startswith("arn:") or arn.startswith(PARTITION):
        return None
    return f"{quoted(arn)} is in another partition of AWS, and the Regions of the catalog are in 'aws': write an ARN that begins with {PARTITION}"


def same_names(readers: Sequence[Callable[[], str]], kind: str) -> Iterator[Finding]:
    names = [or_none(read) for read in readers]
    for index, name in enumerate(names):
        if name is not None and name in names[:index]:
            message = f"{quoted(name)} is already the name of {kind}[{names.index(name)}]"
            yield error(kind, index, "name", id="duplicate-name", message=message)


def unknown_machine(name: str, path: Path, catalog: Catalog) -> Finding:
    refused = catalog.refused.get(name.partition(".")[0])
    if refused is not None:
        return error(*path, id="machine-refused", message=f"{quoted(name)} is not supported: {refused}")
    near = did_you_mean(name, catalog.machines)
    return error(*path, id="unknown-machine", message=f"{quoted(name)} is not in the catalog{near}")


def not_sold(name: str, region: str, catalog: Catalog, outcome: str) -> str:
    return f"the catalog of {catalog.date} has no zone of {region} that offers '{name}'; if that is still true, {outcome}"

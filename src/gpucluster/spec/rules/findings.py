"""How a rule finds and says things: absent parts, repetitions, and the sentences that more than one rule uses."""

from collections.abc import Callable, Iterator, Sequence

from gpucluster.catalog import Catalog
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.part import AbsentError
from gpucluster.spec.problem import Finding, Level, Path, quoted


def error(*path: str | int, id: str, says: str) -> Finding:  # noqa: A002 - the word of the message format
    return Finding(path=path, id=id, message=says)


def warning(*path: str | int, id: str, says: str) -> Finding:  # noqa: A002
    return Finding(path=path, id=id, message=says, level=Level.WARNING)


def advice(*path: str | int, id: str, says: str) -> Finding:  # noqa: A002
    return Finding(path=path, id=id, message=says, level=Level.ADVICE)


def run(found: Iterator[Finding]) -> list[Finding]:
    kept: list[Finding] = []
    try:
        for finding in found:
            kept.append(finding)  # noqa: PERF402 - what came before an absent part stays
    except AbsentError:
        pass
    return kept


def parsed(read: Callable[[], Sequence[object]]) -> Sequence[object]:
    try:
        return read()
    except AbsentError:
        return ()


def or_none(read: Callable[[], object]) -> object | None:
    try:
        return read()
    except AbsentError:
        return None


def repeated(values: Sequence[str], path: Path, what: str) -> Iterator[Finding]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield error(*path, index, id="repeated", says=f"{what} {quoted(value)} is named twice")


def same_names(readers: Sequence[Callable[[], str]], kind: str) -> Iterator[Finding]:
    names = [or_none(read) for read in readers]
    for index, name in enumerate(names):
        if name is not None and name in names[:index]:
            says = f"{quoted(name)} is already the name of {kind}[{names.index(name)}]"
            yield error(kind, index, "name", id="duplicate-name", says=says)


def unknown_machine(name: str, path: Path, catalog: Catalog) -> Finding:
    refused = catalog.refused.get(name.partition(".")[0])
    if refused is not None:
        return error(*path, id="machine-refused", says=f"{quoted(name)} is not offered: {refused}")
    near = did_you_mean(name, catalog.machines)
    return error(*path, id="unknown-machine", says=f"{quoted(name)} is not in the catalog{near}")


def not_sold(name: str, region: str, catalog: Catalog, outcome: str) -> str:
    return f"the catalog of {catalog.date} has no zone of {region} that sells '{name}'; if so, {outcome}"

"""Slices of GPUs: whether the pool's GPU has such profiles, and room for so many."""

from collections.abc import Iterator, Mapping

from gpucluster.catalog import Catalog, MigProfile
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding, Path, quoted
from gpucluster.spec.rules.findings import error
from gpucluster.spec.rules.kubernetes import machines_of

SEVENTHS, EIGHTHS = 7, 8  # of a GPU's compute and memory, whatever the model


def mig(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    wanted, path = written(spec.pools[index].sharing).mig, ("pools", index, "sharing", "mig")
    machine = machines_of(spec.pools[index], catalog)[0]
    if machine.gpu is None:
        yield error(*path, id="no-mig", says=f"'{machine.name}' has no GPU that MIG could slice")
        return
    gpu = f"{machine.gpu.model} of {machine.gpu.memory_mib} MiB"
    profiles = catalog.mig.get((machine.gpu.model, machine.gpu.memory_mib))
    if profiles is None:
        yield error(*path, id="no-mig", says=f"MIG cannot slice the {gpu} of '{machine.name}'")
        return
    yield from _profiles(wanted, profiles, gpu, path)


def _profiles(
    wanted: Mapping[str, int], profiles: Mapping[str, MigProfile], gpu: str, path: Path
) -> Iterator[Finding]:
    for name in wanted:
        if name not in profiles:
            says = f"the {gpu} has no profile {quoted(name)}; it has {', '.join(profiles)}"
            yield error(*path, name, id="unknown-profile", says=says)
    known = {name: count for name, count in wanted.items() if name in profiles}
    compute = sum(profiles[name].compute * count for name, count in known.items())
    memory = sum(profiles[name].memory * count for name, count in known.items())
    if compute > SEVENTHS or memory > EIGHTHS or any(n > profiles[name].most for name, n in known.items()):
        most = ", ".join(f"at most {profiles[name].most} of {name}" for name in known)
        says = f"one GPU has {SEVENTHS} parts of compute and {EIGHTHS} of memory, these take {compute} and {memory} ({most})"
        yield error(*path, id="too-many-slices", says=says)

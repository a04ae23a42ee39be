"""The texts of `gpucluster k8s up`, `status`, `upgrade` and `why` for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gpucluster.text import printable

if TYPE_CHECKING:
    from gpucluster.k8s_apply.status import Status
    from gpucluster.k8s_apply.up import Applied
    from gpucluster.k8s_apply.upgrade import Upgrade
    from gpucluster.k8s_apply.why.cause import Answer

OLD_APIS = (
    "old versions of APIs: one API server counted them, since its start; EKS has several and replaces them,"
    " so read the audit log, too"
)
_LONGEST = 1000  # characters of a controller's words


def lines(found: "Status") -> Iterator[str]:
    """Yield the lines. Texts of controllers are untrusted, so they are made printable."""
    tree = found.wanted[:12]
    state = {found.wanted: f"the tree {tree} is applied", "": f"the tree {tree} is not applied"}
    yield state.get(found.applied, f"the tree {found.applied[:12]} is applied, the spec makes {tree}")
    if found.another:
        yield f"another cluster: {printable(found.another, _LONGEST)}"
    for row in _rows(found):
        yield "  ".join(
            printable(cell, 120).ljust(width) for cell, width in zip(row, (8, 34, 22, 0), strict=True)
        ).rstrip()


def _rows(found: "Status") -> Iterator[tuple[str, str, str, str]]:
    for chart in found.charts:
        yield "chart", f"{chart.name} {chart.wanted}", chart.installed or "-", chart.state
    for wave in found.waves:
        there = wave.objects - len(wave.missing)
        words = [
            *(f"missing: {name}" for name in wave.missing),
            *(f"differs: {name}" for name in wave.changed),
            *(f"not compared: {reason}" for reason in wave.unread),
        ]
        yield "wave", wave.folder, f"{there} of {wave.objects} objects", "; ".join(words)
    for pool in found.pools:
        limits = ", ".join(f"{key} {value}" for key, value in sorted(pool.limits.items()))
        yield "pool", pool.name, f"{pool.nodes} nodes", pool.waiting or (f"limit: {limits}" if limits else "")
    for queue in found.queues:
        yield "queue", queue.name, f"{queue.admitted} admitted, {queue.pending} pending", queue.waiting
        for use in queue.uses:
            yield "", f"  {use.flavor} {use.resource}", f"{use.used} of {use.quota}", ""
    for one in found.workloads:
        yield "workload", one.name, one.state, one.why
    for name in found.leftovers:
        yield "left", name, "not in the spec", ""


def up_lines(done: "Applied", name: str, context: str, through: str | None) -> Iterator[str]:
    """Yield the lines of `gpucluster k8s up`."""
    part = f" up to {through}" if through else ""
    changed = f"charts changed: {', '.join(done.charts) or 'none'}; waves applied: {len(done.waves)}"
    yield f"{name}{part} is applied to {context}: {changed}"
    yield from (f"deleted: {ref}" for ref in done.pruned)
    yield from (f"not in the spec, and left there: {ref}" for ref in done.leftovers)
    yield from (f"not ready: {printable(one, _LONGEST)}" for one in done.waiting)
    if done.waiting:
        yield f"all else is applied; what a service waits for: gpucluster k8s why {name} {_subject(done.waiting[0])}"


def _subject(waiting: str) -> str:
    """Return `NAMESPACE/NAME` of a line that begins with `NAMESPACE/KIND/NAME`."""
    namespace, _, rest = printable(waiting).split(" ", 1)[0].rstrip(":").partition("/")
    return f"{namespace}/{rest.partition('/')[2]}"


def upgrade_lines(found: "Upgrade", steps: Mapping[str, Sequence[str]], name: str) -> Iterator[str]:
    """Yield the lines of `gpucluster k8s upgrade`. `steps`: version -> what to type."""
    far = {0: "nothing to upgrade", 1: "1 upgrade"}.get(
        len(found.path), f"{len(found.path)} upgrades, one after the other"
    )
    yield f"{name}: Kubernetes {found.server} in the cluster, {found.wanted} in the spec: {far}"
    for pool, versions in found.nodes.items():
        yield f"  {printable(pool)}: " + ", ".join(
            f"{count} nodes of {version}" for version, count in versions.items()
        )
    yield from (f"  in the way: {printable(one, _LONGEST)}" for one in found.blocked)
    if found.path:
        yield f"  {OLD_APIS}"
    yield from (f"  slow: {printable(one, _LONGEST)}" for one in found.slow)
    yield from (f"  has pods on nodes that EKS replaces: {printable(one)}" for one in found.ends)
    for number, (version, words) in enumerate(steps.items(), 1):
        yield f"{number}. to {version}"
        yield from (f"   {one}" for one in words)


def why_lines(found: "Answer") -> Iterator[str]:
    """Yield the lines of `gpucluster k8s why`."""
    pods = ", ".join(f"{count} {phase}" for phase, count in found.pods.items())
    yield f"{printable(found.subject)}: {found.state}" + (f"; pods: {pods}" if pods else "")
    for one in found.causes:
        others = f" and {one.count - 1} more" if one.count > 1 else ""
        yield f"  {one.kind}: {printable(one.subject)}{others}"
        yield f"    {printable(one.by)}: {printable(one.words, _LONGEST)}"
        yield from (f"    {printable(detail, _LONGEST)}" for detail in one.details)
        if one.next_step:
            yield f"    next: {one.next_step}"
    if not found.causes:
        yield "  nothing waits" if found.state in ("ready", "completed") else "  no controller says why"
    if found.unread:
        yield f"  not readable for you: {', '.join(found.unread)}"

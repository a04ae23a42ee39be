"""`sandbox status`: what lives, what dead sandboxes left, and what our caches hold."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from gpucluster.errors import StateError
from gpucluster.sandbox import host, images, inside, ledger, places
from gpucluster.sandbox.host import CgroupTree
from gpucluster.sandbox.inside import Resident
from gpucluster.sandbox.ledger import Home

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One sandbox: `state` is up, starting, or dead (only files are left)."""

    name: str
    state: str
    endpoint: str
    machines: tuple[Resident, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything of ours on this machine."""

    sandboxes: tuple[Seen, ...]
    caches: tuple[tuple[str, int], ...]  # name below places.CACHE, bytes

    def as_json(self) -> dict[str, object]:
        """For `--output json`."""
        caches = [{"path": str(places.CACHE / name), "bytes": size} for name, size in self.caches]
        return {"sandboxes": [asdict(seen) for seen in self.sandboxes], "caches": caches}

    def as_text(self) -> str:
        """For people."""
        lines = [line for seen in self.sandboxes for line in _lines(seen)] or [
            "no sandbox is on this machine"
        ]
        caches = [f"  {size / _MIB:8.1f} MiB  {places.CACHE / name}" for name, size in self.caches]
        return "\n".join((*lines, *(("caches, which `down` keeps:", *caches) if caches else ())))


def status(name: str | None = None, *, root: Path = places.STATE_ROOT) -> Status:
    """Look at the machine; StateError if `name` is not there."""
    host.require_root()
    trees = host.cgroup_trees(Path("/proc/self/mountinfo").read_text())
    found = {home.name: home for home in (*ledger.homes(root), *_only_groups(trees, root))}
    if name is not None and name not in found:
        raise StateError(
            f"there is no sandbox '{name}' on this machine", next_step="gpucluster sandbox status"
        )
    wanted = [home for _, home in sorted(found.items()) if name in (None, home.name)]
    return Status(sandboxes=tuple(_seen(home, trees) for home in wanted), caches=images.cached())


def _seen(home: Home, trees: tuple[CgroupTree, ...]) -> Seen:
    if not ledger.alive(home):
        return Seen(name=home.name, state="dead", endpoint="", machines=())
    capsule = home.read_capsule()
    if capsule is None:
        return Seen(name=home.name, state="starting", endpoint="", machines=())
    return Seen(
        name=home.name,
        state="up",
        endpoint=f"http://127.0.0.1:{capsule.port}",
        machines=inside.residents(home, trees),
    )


def _lines(seen: Seen) -> Iterable[str]:
    if seen.state == "dead":
        yield f"{seen.name}: not running, but it left files; next: gpucluster sandbox down {seen.name}"
        return
    yield f"{seen.name}: {seen.state} {seen.endpoint}".rstrip()
    for machine in seen.machines:
        yield f"  {machine.instance}  {machine.role or 'booting':8} {machine.node}".rstrip()


def _only_groups(trees: tuple[CgroupTree, ...], root: Path) -> Iterable[Home]:
    """Control groups that no folder stands beside: left by a kill between the two."""
    prefix = places.cgroup_name("")
    for group in {p.name for tree in trees for p in tree.mount.glob(f"{prefix}*")}:
        yield Home(name=group.removeprefix(prefix), root=root)

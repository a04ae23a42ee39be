"""`sandbox status`: what lives, what dead sandboxes left, and what our caches hold."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpucluster.errors import StateError
from gpucluster.plan import names
from gpucluster.sandbox import host, images, inside, ledger, places
from gpucluster.sandbox.control import SandboxControl
from gpucluster.sandbox.host import CgroupTree
from gpucluster.sandbox.ledger import Home
from gpucluster.sandbox.plain import plain_of

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One sandbox: `state` is up, starting, or dead (only files are left). Instances are the cloud's, in its words."""

    name: str
    state: str
    endpoint: str = ""
    instances: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What was asked for: one sandbox, or all of them and the caches."""

    sandboxes: tuple[Seen, ...]
    caches: tuple[tuple[str, int], ...]  # name below places.CACHE, bytes

    def as_json(self) -> dict[str, Any]:
        """For `--output json`; `instances` stands at the top when one sandbox was asked for."""
        caches = [{"path": str(places.CACHE / name), "bytes": size} for name, size in self.caches]
        found = {"sandboxes": [asdict(seen) for seen in self.sandboxes], "caches": caches}
        return (
            found if len(self.sandboxes) != 1 else {**found, "instances": list(self.sandboxes[0].instances)}
        )

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
    found = {home.name: home for home in (*_only_groups(trees, root), *ledger.homes(root))}
    if name is not None and name not in found:
        raise StateError(
            f"there is no sandbox '{name}' on this machine", next_step="gpucluster sandbox status"
        )
    wanted = [home for _, home in sorted(found.items()) if name in (None, home.name)]
    seen = tuple(_seen(home, trees) for home in wanted)
    return Status(sandboxes=seen, caches=images.cached() if name is None else ())


def control(home: Home) -> SandboxControl:
    """The operator's way to give orders to a living sandbox's cloud."""
    where, keys = home.read_json(home.endpoint), home.read_json(home.operator)
    return SandboxControl(where["endpoint"], keys["access_key"], keys["secret"])


def _seen(home: Home, trees: tuple[CgroupTree, ...]) -> Seen:
    if not ledger.alive(home):
        return Seen(name=home.name, state="dead")
    capsule = home.read_capsule()
    if capsule is not None and home.site.is_dir():
        return Seen(name=home.name, state="up", instances=tuple(_plain(home, trees)))
    if capsule is None or not home.endpoint.exists():
        return Seen(name=home.name, state="starting")
    nodes = {resident.instance: resident.node for resident in inside.residents(home, trees)}
    return Seen(
        name=home.name,
        state="up",
        endpoint=f"http://127.0.0.1:{capsule.port}",
        instances=tuple(sorted((_instance(i, nodes) for i in control(home).instances()), key=_order)),
    )


def _plain(home: Home, trees: tuple[CgroupTree, ...]) -> Iterable[dict[str, Any]]:
    """Machines that no cloud knows; `state` is whether they run."""
    running = {resident.instance: resident for resident in inside.residents(home, trees)}
    for machine in plain_of(home.read_plan()):
        found = running.get(machine.name)
        yield {
            "id": machine.name,
            "role": found.role if found else "",
            "state": "running" if found else "off",
            "node": found.node if found else "",
            "address": machine.address,
            "machine": "plain",
            "market": "",
            "zone": "",
        }


def _instance(raw: dict[str, Any], nodes: Mapping[str, str]) -> dict[str, Any]:
    role = raw["tags"].get(names.TAG_ROLE, "")
    return {**raw, "role": role, "node": nodes.get(raw["id"], "")}


def _order(instance: Mapping[str, Any]) -> tuple[Any, ...]:
    return instance["role"] != names.ROLE_HEAD, instance["launched_at"], instance["id"]


def _lines(seen: Seen) -> Iterable[str]:
    if seen.state == "dead":
        yield f"{seen.name}: not running, but it left files; next: gpucluster sandbox down {seen.name}"
        return
    yield f"{seen.name}: {seen.state} {seen.endpoint}".rstrip()
    for i in seen.instances:
        if i["state"] != "terminated":
            place = f"{i['machine']} {i['market']} {i['zone']} {i['address'] or ''}"
            yield f"  {i['id']}  {i['role']:4}  {i['state']:13}  {i['node'] or '-':14}  {place}".rstrip()


def _only_groups(trees: tuple[CgroupTree, ...], root: Path) -> Iterable[Home]:
    """Control groups that no folder stands beside: left by a kill between the two."""
    prefix = places.cgroup_name("")
    for group in {p.name for tree in trees for p in tree.mount.glob(f"{prefix}*")}:
        yield Home(name=group.removeprefix(prefix), root=root)

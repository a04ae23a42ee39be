"""`sandbox status`: running sandboxes, remains of ended ones, and the size of the caches."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpucluster.errors import StateError
from gpucluster.plan import names
from gpucluster.sandbox import cache_sizes, host_checks, paths, state_dir
from gpucluster.sandbox.aws.scenario_client import SandboxControl
from gpucluster.sandbox.host_checks import CgroupTree
from gpucluster.sandbox.machines import inside
from gpucluster.sandbox.machines.hosts import plain_of
from gpucluster.sandbox.state_dir import SandboxDir

_MIB = 2**20
_OTHER_VERSION = "other-version"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStatus:
    """One sandbox: `state` is up, starting, dead (only files remain), or other-version. Instances have EC2's states."""

    name: str
    state: str
    endpoint: str = ""
    instances: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one sandbox, or of all of them with the caches."""

    sandboxes: tuple[SandboxStatus, ...]
    caches: tuple[tuple[str, int], ...]  # name below paths.CACHE, bytes

    def as_json(self) -> dict[str, Any]:
        """For `--output json`; `instances` is at the top for one sandbox."""
        caches = [{"path": str(paths.CACHE / name), "bytes": size} for name, size in self.caches]
        found = {"sandboxes": [asdict(seen) for seen in self.sandboxes], "caches": caches}
        return (
            found if len(self.sandboxes) != 1 else {**found, "instances": list(self.sandboxes[0].instances)}
        )

    def as_text(self) -> str:
        """The status as text."""
        lines = [line for seen in self.sandboxes for line in _lines(seen)] or [
            "no sandbox is on this machine"
        ]
        caches = [f"  {size / _MIB:8.1f} MiB  {paths.CACHE / name}" for name, size in self.caches]
        return "\n".join((*lines, *(("caches, which `down` keeps:", *caches) if caches else ())))


def status(name: str | None = None, *, root: Path = paths.STATE_ROOT) -> Status:
    """Read the status; StateError if `name` does not exist."""
    host_checks.require_root()
    trees = host_checks.cgroup_trees(Path("/proc/self/mountinfo").read_text())
    found = {home.name: home for home in (*_only_groups(trees, root), *state_dir.homes(root))}
    if name is not None and name not in found:
        raise StateError(
            f"there is no sandbox '{name}' on this machine", next_step="gpucluster sandbox status"
        )
    wanted = [home for _, home in sorted(found.items()) if name in (None, home.name)]
    seen = tuple(_seen(home, trees) for home in wanted)
    return Status(sandboxes=seen, caches=cache_sizes.cached() if name is None else ())


def control(home: SandboxDir) -> SandboxControl:
    """The client for scenario commands to a living sandbox."""
    where, keys = home.read_json(home.endpoint), home.read_json(home.operator)
    return SandboxControl(where["endpoint"], keys["access_key"], keys["secret"])


def _seen(home: SandboxDir, trees: tuple[CgroupTree, ...]) -> SandboxStatus:
    if not state_dir.alive(home):
        return SandboxStatus(name=home.name, state="dead")
    capsule = home.read_capsule()
    if capsule is not None and home.site.is_dir():
        return _seen_plain(home, trees)
    if capsule is None or not home.endpoint.exists():
        return SandboxStatus(name=home.name, state="starting")
    nodes = {machine.instance: machine.node for machine in inside.running_machines(home, trees)}
    return SandboxStatus(
        name=home.name,
        state="up",
        endpoint=f"http://127.0.0.1:{capsule.port}",
        instances=tuple(sorted((_instance(i, nodes) for i in control(home).instances()), key=_order)),
    )


def _seen_plain(home: SandboxDir, trees: tuple[CgroupTree, ...]) -> SandboxStatus:
    try:
        return SandboxStatus(name=home.name, state="up", instances=tuple(_plain(home, trees)))
    except state_dir.OtherVersionError:
        return SandboxStatus(name=home.name, state=_OTHER_VERSION)


def _plain(home: SandboxDir, trees: tuple[CgroupTree, ...]) -> Iterable[dict[str, Any]]:
    """Machines of a sandbox without a cloud; `state` is whether they run."""
    running = {machine.instance: machine for machine in inside.running_machines(home, trees)}
    for machine in plain_of(home.read_plan_on_hosts()):
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


def _lines(seen: SandboxStatus) -> Iterable[str]:
    if seen.state == "dead":
        yield f"{seen.name}: not running, but it left files; next: gpucluster sandbox down {seen.name}"
        return
    if seen.state == _OTHER_VERSION:
        yield f"{seen.name}: up, made by another version of gpucluster; next: use that version, or gpucluster sandbox down {seen.name}"
        return
    yield f"{seen.name}: {seen.state} {seen.endpoint}".rstrip()
    for i in seen.instances:
        if i["state"] != "terminated":
            place = f"{i['machine']} {i['market']} {i['zone']} {i['address'] or ''}"
            yield f"  {i['id']}  {i['role']:4}  {i['state']:13}  {i['node'] or '-':14}  {place}".rstrip()


def _only_groups(trees: tuple[CgroupTree, ...], root: Path) -> Iterable[SandboxDir]:
    """Control groups without a folder: a kill between the two left them."""
    prefix = paths.cgroup_name("")
    for group in {p.name for tree in trees for p in tree.mount.glob(f"{prefix}*")}:
        yield SandboxDir(name=group.removeprefix(prefix), root=root)

"""FSx for Lustre: sizes, life cycle over time, and links to S3 (T45)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpucluster.sandbox.aws.ec2.state.values import Refusal, SubnetRef, stage
from gpucluster.sandbox.aws.ec2.state.vpc_context import VpcContext

_LINKS = 8  # links of one file system
_THROUGHPUTS: Mapping[tuple[str, str], frozenset[int]] = {  # MB/s per TiB
    ("PERSISTENT_1", "SSD"): frozenset({50, 100, 200}),
    ("PERSISTENT_1", "HDD"): frozenset({12, 40}),
    ("PERSISTENT_2", "SSD"): frozenset({125, 250, 500, 1000}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lustre:
    """One file system; `options` is the LustreConfiguration of the request."""

    id: str
    token: str
    fingerprint: str
    created_at: float
    ready_at: float
    subnet: SubnetRef
    interface: str
    size_gib: int
    storage: str
    options: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # other fields of the request: key, version
    ends_at: float | None = None
    changed_at: float | None = None  # the last UpdateFileSystem

    @property
    def mount_name(self) -> str:
        """The mount name: eight letters; SCRATCH_1 has a fixed one."""
        return "fsx" if self.options.get("DeploymentType") == "SCRATCH_1" else self.id[-8:]

    def state(self, now: float) -> str:
        """The state as FSx names it."""
        return stage(now, self.ready_at, self.ends_at).upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A data repository association."""

    id: str
    system: str
    path: str
    s3: str
    created_at: float
    ready_at: float
    options: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    ends_at: float | None = None

    def state(self, now: float) -> str:
        """The state as FSx names it."""
        return stage(now, self.ready_at, self.ends_at).upper()


class Fsx:
    """All file systems of the account; `vpcs` gives subnets, ids and times. The caller holds its lock."""

    def __init__(self, vpcs: VpcContext) -> None:
        self._vpcs = vpcs
        self._systems: dict[str, Lustre] = {}
        self._links: dict[str, Link] = {}

    def replayed(self, token: str, fingerprint: str) -> Lustre | None:
        """The file system of an identical earlier request; other parameters with the token are refused."""
        known = next((s for s in self._systems.values() if token and s.token == token), None)
        if known is not None and known.fingerprint != fingerprint:
            raise Refusal(
                "IncompatibleParameterError", "The client request token was used with other parameters."
            )
        return known

    def create(self, asked: Lustre, groups: Sequence[str], now: float) -> Lustre:
        """Create one from `asked`, without its interface."""
        interface = self._vpcs.occupy(asked.subnet, f"Created by Amazon FSx for {asked.id}", groups, now)
        made = replace(asked, interface=interface.id, ready_at=now + self._vpcs.timing.lustre_s)
        self._systems[made.id] = made
        return made

    def put(self, system: Lustre) -> Lustre:
        """Replace one."""
        self._systems[system.id] = system
        return system

    def systems(self, ids: Sequence[str], now: float) -> Sequence[Lustre]:
        """All file systems, or these."""
        self._advance(now)
        return [self.system(i, now) for i in ids] or [self._systems[i] for i in sorted(self._systems)]

    def system(self, system: str, now: float) -> Lustre:
        """One file system by id."""
        self._advance(now)
        found = self._systems.get(system)
        if found is None:
            raise Refusal("FileSystemNotFound", f"File system '{system}' does not exist.")
        return found

    def remove(self, system: str, now: float) -> Lustre:
        """Begin its deletion; its links are deleted with it."""
        found = self.system(system, now)
        if found.ends_at is not None:
            return found
        return self.put(replace(found, ends_at=now + self._vpcs.timing.link_s))

    def link(self, asked: Link, now: float) -> Link:
        """Create a link: at most eight, no path inside another's, none on SCRATCH_1."""
        system = self.system(asked.system, now)
        if system.state(now) != "AVAILABLE":
            raise Refusal("BadRequest", f"The file system {system.id} is {system.state(now)}.")
        if system.options.get("DeploymentType") == "SCRATCH_1":
            raise Refusal(
                "UnsupportedOperation", "A SCRATCH_1 file system has no data repository associations."
            )
        others = self.links((), now, system=system.id)
        if len(others) >= _LINKS:
            raise Refusal("ServiceLimitExceeded", f"A file system has at most {_LINKS} associations.")
        for other in others:
            if _overlap(other.path, asked.path) or _overlap(other.s3, asked.s3):
                raise Refusal(
                    "BadRequest", f"The path {asked.path} or its repository overlaps with {other.id}."
                )
        self._links[asked.id] = replace(asked, ready_at=now + self._vpcs.timing.link_s)
        return self._links[asked.id]

    def put_link(self, link: Link) -> Link:
        """Replace a link."""
        self._links[link.id] = link
        return link

    def links(self, ids: Sequence[str], now: float, *, system: str | None = None) -> Sequence[Link]:
        """All links, these, or those of a file system."""
        self._advance(now)
        missing = sorted(set(ids) - self._links.keys())
        if missing:
            raise Refusal("DataRepositoryAssociationNotFound", f"Association '{missing[0]}' does not exist.")
        found = [self._links[i] for i in sorted(self._links) if not ids or i in ids]
        return [link for link in found if system in (None, link.system)]

    def unlink(self, link: str, now: float) -> Link:
        """Begin the deletion of a link."""
        (found,) = self.links((link,), now)
        self._links[link] = replace(found, ends_at=now + self._vpcs.timing.link_s)
        return self._links[link]

    def _advance(self, now: float) -> None:
        for system in tuple(self._systems.values()):
            if system.ends_at is not None and now >= system.ends_at:
                self._vpcs.vacate(system.interface, now)
                del self._systems[system.id]
                self._links = {i: link for i, link in self._links.items() if link.system != system.id}
        for link in tuple(self._links.values()):
            if link.ends_at is not None and now >= link.ends_at:
                del self._links[link.id]


def check_shape(size_gib: int, storage: str, options: Mapping[str, Any], before: int = 0) -> None:
    """Refuse sizes that FSx does not offer, and a throughput that the deployment type does not have."""
    kind, throughput = (
        str(options.get("DeploymentType") or "SCRATCH_1"),
        options.get("PerUnitStorageThroughput"),
    )
    allowed = _THROUGHPUTS.get((kind, storage))
    if kind.startswith("PERSISTENT") and throughput not in (allowed or ()):
        words = ", ".join(map(str, sorted(allowed or ())))
        raise Refusal(
            "BadRequest", f"PerUnitStorageThroughput of {kind} on {storage} is one of: {words or 'none'}."
        )
    if not _fits(size_gib, kind, storage, int(throughput or 0)):
        raise Refusal("BadRequest", f"A {kind} file system on {storage} cannot have {size_gib} GiB.")
    if before and (size_gib < before or kind == "SCRATCH_1"):
        raise Refusal("BadRequest", f"The storage capacity can only grow: it is {before} GiB.")


def _fits(size_gib: int, kind: str, storage: str, throughput: int) -> bool:
    if storage == "HDD":
        return size_gib > 0 and size_gib % (6000 if throughput == 12 else 1800) == 0
    if kind == "SCRATCH_1":
        return size_gib in (1200, 2400) or (size_gib > 0 and size_gib % 3600 == 0)
    return size_gib == 1200 or (size_gib > 0 and size_gib % 2400 == 0)


def _overlap(one: str, other: str) -> bool:
    first, second = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)

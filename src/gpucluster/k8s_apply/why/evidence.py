"""What was read of the cluster for one subject. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.objects import ref_of, rows, section


@dataclass(frozen=True)
class Evidence:
    """`root` and the objects that were read: those of its namespace, those of the cluster, and the Workloads of all queues."""

    root: Manifest
    objects: tuple[Manifest, ...]
    unread: tuple[str, ...] = ()  # kinds that the user may not read

    @cached_property
    def members(self) -> tuple[Manifest, ...]:
        """The root and all that it owns, directly or through others."""
        found = {uid(self.root): self.root}
        while True:
            more = {
                uid(one): one for one in self.objects if uid(one) not in found and found.keys() & owners(one)
            }
            if not more:
                return tuple(found.values())
            found |= more

    @cached_property
    def ancestors(self) -> tuple[Manifest, ...]:
        """The owners of the root, the nearest first."""
        by_uid = {uid(one): one for one in self.objects}
        found: list[Manifest] = []
        one = self.root
        while one is not None and len(found) < _DEEPEST:
            one = next((by_uid[key] for key in owners(one) if key in by_uid), None)
            if one is not None:
                found.append(one)
        return tuple(found)

    @property
    def pods(self) -> tuple[Manifest, ...]:
        return tuple(one for one in self.members if one["kind"] == "Pod")

    @property
    def workloads(self) -> tuple[Manifest, ...]:
        """The Workloads that Kueue made of the root, of its owners or of its parts."""
        line = {uid(one) for one in (*self.members, *self.ancestors)}
        return tuple(one for one in self.of("Workload") if owners(one) & line or uid(one) in line)

    def of(self, kind: str) -> tuple[Manifest, ...]:
        return self._kinds.get(kind, ())

    def named(self, kind: str, name: str, namespace: str = "") -> Manifest | None:
        found = (one for one in self.of(kind) if one["metadata"]["name"] == name)
        return next((one for one in found if one["metadata"].get("namespace", "") == namespace), None)

    def events(self, one: Manifest) -> tuple[Manifest, ...]:
        """The events of an object, the newest first."""
        return self._events.get(uid(one), ())

    @cached_property
    def _kinds(self) -> Mapping[str, tuple[Manifest, ...]]:
        return _grouped((one["kind"], one) for one in self.objects)

    @cached_property
    def _events(self) -> Mapping[str, tuple[Manifest, ...]]:
        newest = sorted(self.of("Event"), key=seen_at, reverse=True)
        return _grouped((str(section(one, "involvedObject").get("uid", "")), one) for one in newest)


_DEEPEST = 8  # owners above each other: a limit against a circle


def uid(one: Manifest) -> str:
    return str(one["metadata"].get("uid", ""))


def owners(one: Manifest) -> frozenset[str]:
    """Return the uids of its owners."""
    return frozenset(str(row["uid"]) for row in rows(one["metadata"], "ownerReferences"))


def seen_at(event: Manifest) -> str:
    """Return when an event was last seen, in RFC 3339."""
    series = section(event, "series")
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(at) for at in times if at), str(event["metadata"].get("creationTimestamp", "")))


def reporter(event: Manifest) -> str:
    """Return the program that made an event."""
    return str(event.get("reportingComponent") or section(event, "source").get("component") or "")


def message(event: Manifest) -> str:
    return str(event.get("message") or event.get("reason") or "")


def name_of(one: Manifest) -> str:
    """Return `namespace/Kind/name`."""
    return str(ref_of(one))


def _grouped(pairs: Iterable[tuple[str, Manifest]]) -> Mapping[str, tuple[Manifest, ...]]:
    found: dict[str, list[Manifest]] = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return {key: tuple(some) for key, some in found.items()}


def newest(events: Iterable[Manifest], reasons: frozenset[str], by: str = "") -> Manifest | None:
    """Return the first event with one of the reasons, of a program if `by` is not empty."""
    return next((one for one in events if one.get("reason") in reasons and by in reporter(one)), None)

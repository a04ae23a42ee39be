"""Check what was added to the teams' namespaces: policies that open them, queues of other teams, pods that their level forbids.

Only what opens a namespace whole is a fault. A policy for a port, for some pods or for a namespace is the site's business.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, failed, listed, passed, warned
from gpucluster.checks.kubernetes import objects
from gpucluster.checks.kubernetes.owners import owner_of
from gpucluster.text import short

_LISTS = ("NetworkPolicy.v1.networking.k8s.io", "LocalQueue.v1beta2.kueue.x-k8s.io", "PriorityClass.v1.scheduling.k8s.io")  # fmt: skip
_METADATA = ip_network("169.254.169.254/32")
_ENDED = ("Failed", "Succeeded")
_OF_HOST = ("hostIPC", "hostNetwork", "hostPID")
_IN, _OUT = "lets everybody in", "lets all pods out to everywhere, also to the metadata service"
_LIMIT_S = 30.0  # of a namespace with thousands of pods


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedWant:
    """The teams' namespaces with their ClusterQueues. `guarded`: those where the plan forbids privileged pods.

    `whole`: the cluster is ours. `tree`: `KIND/NAMESPACE/NAME` of the policies and queues of the spec.
    """

    whole: bool
    teams: dict[str, str]
    guarded: tuple[str, ...]
    tree: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """An object that opens something. `to`: the ClusterQueue of a LocalQueue. `words`: what it does."""

    kind: str
    namespace: str
    name: str
    words: str
    owner: str
    to: str = ""

    @property
    def ref(self) -> str:
        return "/".join(filter(None, (self.kind, self.namespace, self.name)))


def query_added(want: AddedWant) -> tuple[Query, ...]:
    """The lists of the whole cluster, then the pods of each guarded namespace."""
    rest = ("--output=json",)
    everywhere = (("get", kind, "--all-namespaces", *rest) for kind in _LISTS)
    pods = (("get", "Pod.v1.", "--namespace", one, *rest) for one in want.guarded)
    return tuple(Query(at=Location.API, argv=argv, limit_s=_LIMIT_S) for argv in (*everywhere, *pods))


def parse_added(outputs: tuple[QueryOutput, ...]) -> tuple[Addition, ...]:
    """What opens something, wherever it is."""
    policies, queues, classes, *pods = (objects.items(one) for one in outputs)
    found = [
        *(_addition("NetworkPolicy", one, words) for one in policies for words in _opened(one)),
        *(_addition("LocalQueue", one, "", to=_queue(one)) for one in queues),
        *(_addition("PriorityClass", one, "is the default of all pods that name no class") for one in classes if one.get("globalDefault") is True),
        *(_addition("Pod", one, listed(words)) for some in pods for one in some if (words := list(_privileges(one)))),
    ]  # fmt: skip
    return tuple(found)


def evaluate_added(found: tuple[Addition, ...], want: AddedWant) -> CheckResult:
    expected = "nothing opens the namespaces of teams beside the spec"
    faults, notes, defaults = list[str](), list[str](), list[str]()
    steps = dict[str, None]()
    for one in found:
        if one.kind == "PriorityClass":
            defaults += [f"{short(one.ref, 120)} {one.words}"] if want.whole else []
        elif one.namespace in want.teams and one.ref not in want.tree and (words := _words(one, want)):
            if one.owner and one.kind == "NetworkPolicy":
                notes.append(f"{short(one.ref, 120)} {words} ({one.owner})")
                continue
            faults.append(f"{short(one.ref, 120)} {words}")
            place = f"--namespace {one.namespace} {one.name}"
            steps[f"kubectl delete {one.kind.lower()} {place}"] = None
    if faults:
        return failed(listed([*faults, *defaults]), expected, remedy="; ".join(steps))
    if defaults:
        return warned(listed(defaults), expected, "kubectl get priorityclasses")
    return passed("nothing opens them" + (f"; of others: {listed(notes)}" if notes else ""), expected)


def _words(one: Addition, want: AddedWant) -> str:
    """What an object in a team's namespace does; empty if that is ordinary."""
    if one.kind == "Pod" and one.namespace not in want.guarded:
        return ""
    if one.kind != "LocalQueue":
        return one.words
    owners = [team for team, queue in want.teams.items() if queue == one.to and team != one.namespace]
    ours = want.teams[one.namespace] == one.to
    return f"leads to {one.to}, the queue of {listed(owners)}" if owners and not ours else ""


def _opened(policy: objects.Object) -> Iterator[str]:
    """Yield which way a policy opens all pods of its namespace to everything."""
    spec = objects.section(policy, "spec")
    if any(objects.section(spec, "podSelector").values()):
        return
    if any(_is_everything(one, "from") for one in json_fields.members_if_any(spec, "ingress")):
        yield _IN
    if any(_is_everything(one, "to") for one in json_fields.members_if_any(spec, "egress")):
        yield _OUT


def _is_everything(rule: Mapping[str, Any], key: str) -> bool:
    """Whether a rule without ports has no peers, or one that is everybody."""
    if rule.get("ports"):
        return False
    peers = json_fields.members_if_any(rule, key)
    return not peers or any(map(_is_everybody, peers))


def _is_everybody(peer: Mapping[str, Any]) -> bool:
    """Whether a peer is each pod of each namespace, or all addresses with that of the metadata service."""
    if "ipBlock" in peer:
        block = objects.section(peer, "ipBlock")
        left = json_fields.strings(block, "except") if "except" in block else ()
        return json_fields.text(block, "cidr") in ("0.0.0.0/0", "::/0") and not any(map(_has_metadata, left))
    if "namespaceSelector" not in peer:
        return False
    selectors = (objects.section(peer, key) for key in ("namespaceSelector", "podSelector"))
    return not any(part for one in selectors for part in one.values())


def _has_metadata(span: str) -> bool:
    try:
        known = ip_network(span, strict=False)
    except ValueError:
        return False
    return known.version == _METADATA.version and known.supernet_of(_METADATA)  # pyright: ignore[reportArgumentType]


def _privileges(pod: objects.Object) -> Iterator[str]:
    """Yield what the level `baseline` of Pod Security refuses: a pod that started before keeps it."""
    if objects.section(pod, "status").get("phase") in _ENDED:
        return
    spec = objects.section(pod, "spec")
    kinds = ("containers", "initContainers", "ephemeralContainers")
    containers = [one for kind in kinds for one in json_fields.members_if_any(spec, kind)]
    if any(objects.section(one, "securityContext").get("privileged") is True for one in containers):
        yield "is privileged"
    yield from (f"has {key}" for key in _OF_HOST if spec.get(key) is True)
    if any("hostPath" in one for one in json_fields.members_if_any(spec, "volumes")):
        yield "has a folder of the host"


def _queue(item: objects.Object) -> str:
    spec = objects.section(item, "spec")
    return json_fields.text(spec, "clusterQueue") if "clusterQueue" in spec else ""


def _addition(kind: str, item: objects.Object, words: str, to: str = "") -> Addition:
    metadata = objects.section(item, "metadata")
    return Addition(
        kind=kind,
        namespace=json_fields.text(metadata, "namespace") if "namespace" in metadata else "",
        name=json_fields.text(metadata, "name"),
        words=words,
        owner=owner_of(item),
        to=to,
    )

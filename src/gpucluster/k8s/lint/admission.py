"""Whether the admission policies of the manifests, and of the plan, admit their pods. The API server accepts a Job or a JobSet and refuses
its pods later, without an error at the workload."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cel import Context
from cel.stdlib import STDLIB_FUNCTIONS

from gpucluster.k8s.lint import cel
from gpucluster.k8s.lint.document import documents
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj, build
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.policies import GROUP, POLICY, POLICY_KIND
from gpucluster.k8s.lint.tree import at, entries, items, mapping, text

_BINDING = f"{POLICY_KIND}Binding.{GROUP}"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """An object of the manifests counts before the plan's of the same name."""
    plan, _ = build(documents(manifests.facts.pod_rules), manifests.facts)
    sets = (manifests, plan)
    for binding in _of_any(sets, _BINDING):
        policy = _get(sets, POLICY, text(at(binding.body, "spec", "policyName")))
        if (
            policy
            and "Deny" in items(at(binding.body, "spec", "validationActions"))
            and _is_about_pods(policy)
        ):
            for thing in manifests.objects:
                if _selects(sets, binding, thing.namespace):
                    for pods in pods_of(thing):
                        yield from _evaluate(policy, pods)


def _of_any(sets: tuple[ManifestSet, ...], key: str) -> Iterable[Obj]:
    return {one.name: one for known in reversed(sets) for one in known.all(key)}.values()


def _get(sets: tuple[ManifestSet, ...], key: str, name: str) -> Obj | None:
    return next((found for known in sets if (found := known.get(key, name))), None)


def _is_about_pods(policy: Obj) -> bool:
    rules = [mapping(rule) for _, rule in entries(policy.body, "spec", "matchConstraints", "resourceRules")]
    return any(
        "pods" in items(rule.get("resources")) and "" in items(rule.get("apiGroups")) for rule in rules
    )


def _selects(sets: tuple[ManifestSet, ...], binding: Obj, name: str) -> bool:
    """Only namespaces of the manifests and of the plan are compared. A binding with another kind of selector is left out."""
    namespace = _get(sets, "Namespace", name)
    match = mapping(at(binding.body, "spec", "matchResources"))
    selector = mapping(match.get("namespaceSelector"))
    if (
        namespace is None
        or not match.keys() <= {"namespaceSelector"}
        or not selector.keys() <= {"matchLabels"}
    ):
        return False
    labels = {**namespace.labels, "kubernetes.io/metadata.name": name}
    return mapping(selector.get("matchLabels")).items() <= labels.items()


def _evaluate(policy: Obj, pods: Pods) -> Iterator[Finding]:
    """A rule that the engine cannot evaluate is no verdict: the server knows types that the engine does not."""
    variables: dict[str, Any] = {}
    known = {"object": {**pods.template, "spec": dict(pods.spec)}, "oldObject": None, "variables": variables}
    for _, variable in entries(policy.body, "spec", "variables"):
        variables[text(at(variable, "name"))] = _value(text(at(variable, "expression")), known)
    if any(
        _value(text(at(one, "expression")), known) is not True
        for _, one in entries(policy.body, "spec", "matchConditions")
    ):
        return
    for _, rule in entries(policy.body, "spec", "validations"):
        if _value(text(at(rule, "expression")), known) is False:
            words = text(at(rule, "message")) or text(at(rule, "expression"))
            yield pods.owner.found(
                "admission-policy", f"policy {policy.name!r} refuses its pods: {words}", pods.where("spec")
            )


def _value(written: str, known: Mapping[str, Any]) -> Any:
    try:
        return cel.compiled(written).execute(Context(dict(known), dict(STDLIB_FUNCTIONS)))
    except cel.ENGINE_ERRORS:
        return None

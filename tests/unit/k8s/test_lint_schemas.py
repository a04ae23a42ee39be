"""Schemas and CEL: the engine has every shipped rule and pattern, and both validators agree with upstream's."""

from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
from support.manifests import FACTS, GONE, changed, good, pick

from gpucluster.catalog import crd_schema, crd_schemas, kubernetes_facts
from gpucluster.k8s.lint import CHECKERS, Facts, Severity, builtin, cel, check, schemas, unchecked
from gpucluster.k8s.lint.custom_resources import definitions
from gpucluster.k8s.lint.document import documents
from gpucluster.k8s.lint.manifest_set import ManifestSet, build

NAMES = sorted(crd_schemas())


def manifest_set(manifests: list[Any], release: str = "1.36") -> ManifestSet:
    return build(documents(manifests), replace(FACTS, kubernetes=release))[0]


def patterns(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(patterns, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    return own.union(*map(patterns, schema.values()))


@pytest.mark.parametrize("name", NAMES, ids=" ".join)
def test_engine_knows_every_rule_and_pattern(name: tuple[str, str]) -> None:
    schema = crd_schema(*name)
    for _, rule in cel.rules(schema):
        assert cel.compiled(rule).source == rule
    for pattern in patterns(schema):
        assert cel.matches("", pattern) in (True, False)


def test_all_cel_rules_are_found() -> None:
    counts = [len(list(cel.rules(crd_schema(*name)))) for name in NAMES]
    late = [len(cel.transitions(crd_schema(*name))) for name in NAMES]
    assert (sum(counts), sum(late)) == (191, 49)


def test_every_rule_has_a_reachable_field() -> None:
    """No rule may be skipped because its path is spelled differently."""
    for name in NAMES:
        schema = crd_schema(*name)
        assert str(schema).count("'rule':") == len(list(cel.rules(schema))), name


CASES: list[tuple[str, str, str, Any]] = [
    ("good", "Deployment/chat", "spec/replicas", 3),
    ("an unknown field", "Deployment/chat", "spec/template/spec/containers/0/imag", "x"),
    ("a wrong type", "Service/chat", "spec/ports", {}),
    ("a missing field", "HorizontalPodAutoscaler/chat", "spec/maxReplicas", GONE),
    ("an unknown field of metadata", "Namespace/research", "metadata/label", {}),
    ("a null", "ConfigMap/nccl", "data", None),
    ("a number for text", "Namespace/research", "metadata/name", 1),
]


@pytest.mark.parametrize("release", kubernetes_facts().versions)
@pytest.mark.parametrize(("what", "path", "value"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])  # fmt: skip
def test_built_in_verdicts_are_those_of_kubernetes_validate(
    release: str, what: str, path: str, value: Any
) -> None:
    manifest = next(one for one in changed(what, path, value) if one not in good())
    try:
        kubernetes_validate.validate(manifest, release, strict=True)
        good_there = True
    except kubernetes_validate.ValidationError:
        good_there = False
    assert (list(builtin.check(manifest_set([manifest], release))) == []) is good_there


def test_all_errors_of_an_object_are_reported() -> None:
    manifests = changed("Deployment/chat", "spec/replicas", "two")
    pick(manifests, "Deployment/chat")["spec"]["replica"] = 2
    assert {(found.path, found.message) for found in check(manifests, FACTS)} == {
        ("spec.replicas", "expected a whole number or nothing, found 'two'"),
        ("spec.replica", "no field of that name: 'replica'; did you mean 'replicas'?"),
    }


def test_defaults_are_taken_before_the_rules() -> None:
    """The rule reads `whenCanBorrow`, which only the default sets. Without the default the key is missing."""
    manifests = changed("ClusterQueue/research", "spec/flavorFungibility", {"preference": "BorrowingOverPreemption"})  # fmt: skip
    (found,) = schemas.check(manifest_set(manifests))
    assert found.rule == "cel"
    assert found.message.startswith("preference can only be set when")


def test_rule_is_skipped_for_a_value_of_another_type() -> None:
    manifests = changed("NodePool/serve", "spec/template/spec/requirements", "all")
    (found,) = schemas.check(manifest_set(manifests))
    assert (found.rule, found.path) == ("schema", "spec.template.spec.requirements")


def test_hostile_text_costs_no_time_in_a_pattern() -> None:
    """With Python's `re` this pattern takes time in the fourth power of the length."""
    manifests = changed("NodePool/serve", "spec/disruption/budgets/0/schedule", " " * 4000)
    pick(manifests, "NodePool/serve")["spec"]["disruption"]["budgets"][0]["duration"] = "1h"
    assert list(schemas.check(manifest_set(manifests))) == []


def test_labels_that_a_schema_keeps_open_are_open() -> None:
    manifests = changed("NodePool/serve", "spec/template/metadata/labels/example.org~more", "yes")
    assert list(schemas.check(manifest_set(manifests))) == []


@pytest.mark.parametrize("name", sorted(CHECKERS))
def test_checker_without_objects_has_no_finding(name: str) -> None:
    assert list(CHECKERS[name](manifest_set([]))) == []


def test_each_good_object_is_looked_at() -> None:
    """An empty object of each kind is refused, so no kind is skipped."""
    for manifest in good():
        if manifest["kind"] in ("Cohort", "ServiceAccount", "ConfigMap", "Namespace", "RoleBinding", "Role"):
            continue  # valid when empty, or nearly
        bare = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": {"name": "x"}, "spec": 1}  # fmt: skip
        both = [*builtin.check(manifest_set([bare])), *schemas.check(manifest_set([bare]))]
        assert both, manifest["kind"]


class Unread(dict[str, Any]):
    """A schema that nobody may look into."""

    def items(self) -> Any:
        raise AssertionError("read")


def definition(kind: str, schema: Any, version: str = "v1") -> Any:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{kind.lower()}s"},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


THING = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": 1}}
SOUND = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
PART = Facts(kubernetes="1.36", whole=False)


def test_schema_is_read_only_for_an_object_of_its_kind() -> None:
    """A folder of definitions has hundreds of schemas, and reading one takes up to a second."""
    given = definitions(
        [definition("Other", Unread(type="object", properties={})), definition("Thing", SOUND)]
    )
    facts = replace(PART, resources=tuple(given))
    assert {(one.rule, one.level) for one in check([THING], facts)} == {("schema", Severity.ERROR)}
    assert any(line.startswith("Thing ") for line in unchecked([THING], PART))
    assert not any(line.startswith("Thing ") for line in unchecked([THING], facts))


@pytest.mark.parametrize(
    "schema", [{"type": "no type"}, {"type": "object", "properties": {"spec": {"type": 1}}}, {}]
)
def test_schema_that_is_none_leaves_its_kind_unchecked(schema: Any) -> None:
    given = definitions([definition("Thing", schema), definition("Thing", SOUND, "v2")])
    facts = replace(PART, resources=tuple(given))
    assert check([THING], facts) == ()
    assert any(line.startswith("Thing (example.org/v1)") for line in unchecked([THING], facts))

"""Every valid spec gives manifests that pass every checker, and text stays in its own field."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from support.builders import WORKLOADS, a_kube_spec, kubernetes_of
from support.kube import objects, tree
from support.kube_specs import kube_specs, workloads_for

from gpucluster import catalog, k8s
from gpucluster.k8s import manifest, shapes
from gpucluster.k8s.lint import check, facts
from gpucluster.k8s.lint.read import read
from gpucluster.k8s.manifest import scalar
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.spec import inspect_workloads_text
from gpucluster.spec.tree import plain
from gpucluster.spec.yaml import parse

DNS_1123 = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


CHOSEN = frozenset(  # warnings about what a user wrote in workloads, or left out in `kubernetes.node_image`
    {"image-tag", "gpu-count", "literal-secret", "no-shm", "node-image", "unit"}
)


@settings(max_examples=12)
@given(st.data())
def test_any_spec_gives_manifests_that_every_checker_takes_and_its_pools_can_hold(
    data: st.DataObject,
) -> None:
    """Every workload that `check` accepts is admitted: the linter reads quotas, flavors and topologies as Kueue does."""
    spec = data.draw(kube_specs())
    plan, running = resolve(spec, catalog.load()), data.draw(workloads_for(spec))
    some = None if running is None else workloads(running, kubernetes_of(plan))
    texts = {a.path.removeprefix("k8s/"): a.content.decode() for a in k8s.render(plan, some)}
    documents = [
        document
        for path, text in texts.items()
        if path.endswith(".yaml") and not path.startswith("helm/")
        for document in read(text, path).documents
    ]
    found_by_lint = [one for one in check(documents, facts(plan)) if one.rule not in CHOSEN]
    assert [str(finding) for finding in found_by_lint] == []
    found = objects(texts)
    _promised(plan, found)
    for one in found.values():
        assert all(DNS_1123.fullmatch(part) for part in one["metadata"]["name"].split("."))


def _promised(plan: ClusterPlan, found: dict[str, Any]) -> None:
    """Queues and cohort together assign no more than the pools have at their max."""
    most = {
        (names.flavor(plan.name, pool.name, [level.word for level in pool.levels]), r): amount
        for pool in kubernetes_of(plan).pools
        for r, amount in pool.offers().items()
    }
    given_out: dict[tuple[str, str], int] = {}
    for key, one in found.items():
        if key.startswith(("ClusterQueue/", "Cohort/")):
            for group in one.get("spec", {}).get("resourceGroups", []):
                for flavor in group["flavors"]:
                    for row in flavor["resources"]:
                        place = (flavor["name"], row["name"])
                        given_out[place] = given_out.get(place, 0) + _amount(row["name"], row["nominalQuota"])
    assert all(amount <= most.get(place, 0) for place, amount in given_out.items())


def _amount(resource: str, text: str) -> int:
    if resource == "cpu":
        return int(text.removesuffix("m")) * (1 if text.endswith("m") else 1000)
    units = {"Mi": 1, "Gi": 1024, "Ti": 1024**2}
    return int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)


# --- hostile text -------------------------------------------------------------------------------

HOSTILE = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    [
        "on",
        "1:30",
        "0644",
        "null",
        "~",
        "{{ namespace }}",
        "{% raw %}",
        '"\n      privileged: true\n#',
        "'}]\n---\nkind: Pod",
        "a: b",
        "- x",
        "!!python/object:os.system x",
        "*alias",
        "&anchor x",
        "%YAML 1.1",
        "\u2028x",
        "\x85",
        "\ufeff",
        "😀",
        "a\tb",
        " lead",
        "trail ",
        "x\n y\n",
        "",
    ]
)
CLUSTER = a_kube_spec()
PLAN = resolve(CLUSTER, catalog.load())


@settings(max_examples=12)
@given(
    st.lists(HOSTILE, max_size=3),
    st.dictionaries(st.sampled_from(["A", "B_1", "on", "y"]), HOSTILE, max_size=3),
)
def test_no_text_of_a_workload_leaves_its_field(args: list[str], env: dict[str, str]) -> None:
    """The spec refuses the text, or the manifest has it exactly."""
    values: Any = plain(parse(WORKLOADS).root)
    for one in (values["serve"][0], values["train"][0]):
        one["env"] = env
        if args:
            one["args"] = args
    report = inspect_workloads_text(json.dumps(values), "w.yaml", CLUSTER, catalog.load())
    if report.errors:
        assert {problem.id for problem in report.errors} <= {"bad-text", "yaml"}
        return
    some = workloads(report.result(), kubernetes_of(PLAN))
    found = objects({a.path.removeprefix("k8s/"): a.content.decode() for a in k8s.render(PLAN, some)})
    assert len(found) == len(objects(tree(CLUSTER, PLAN)))
    gang = found["JobSet/research/tune"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    for pod in (found["Deployment/serving/chat"]["spec"]["template"]["spec"], gang):
        (container,) = pod["containers"]
        assert container.get("args", []) == args
        assert env.items() <= {one["name"]: one.get("value") for one in container.get("env", [])}.items()
        assert "privileged" not in container["securityContext"]


@given(st.text(st.characters(codec="utf-8")) | HOSTILE)
def test_scalar_is_one_line_that_yaml_reads_back(text: str) -> None:
    written = scalar({"a": [text]})
    assert "\n" not in written
    assert YAML(typ="safe", pure=True).load(f"key: {written}") == {"key": {"a": [text]}}


@given(
    st.dictionaries(
        st.from_regex("[a-z]{1,8}", fullmatch=True), HOSTILE | st.integers() | st.booleans(), max_size=5
    )
)
def test_dump_is_equal_in_yaml_1_1_and_1_2(values: dict[str, Any]) -> None:
    text = manifest.dump([{"data": values}])
    assert manifest.documents(text) == [{"data": values}]
    got = read(text, "file")
    assert not got.findings
    assert [document.value for document in got.documents] == [{"data": values}]


VALUES = st.recursive(
    HOSTILE | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "B", "on", "1", "x y"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "no", "kind"]), VALUES, max_size=3), max_size=3))
def test_rewrite_gives_the_bytes_of_documents_and_dump(values: list[dict[str, Any]]) -> None:
    text = "".join(f"---\n{scalar(one)}\n" for one in values)
    assert manifest.rewrite(text, "# why\n") == manifest.dump(manifest.documents(text), "# why\n")


WORDS = (
    st.from_regex(r"[!-~]{1,130}", fullmatch=True)
    | HOSTILE
    | st.sampled_from(["on", "1:30", "Word0x", "{0}", "a: b", "a b " * 40, "1" * 140, "x y " * 25 + "z" * 60])
)


@given(
    st.lists(VALUES, max_size=3), st.lists(st.lists(WORDS, min_size=4, max_size=4), min_size=1, max_size=3)
)
def test_a_shape_gives_the_bytes_of_rewrite_for_any_words(values: list[Any], texts: list[list[str]]) -> None:
    for name, label, item, long in texts:
        text = f"""# A team's "words
kind: Role
metadata:
  name: {scalar(name)}
  labels: {scalar({"b": label, "a": name, label: item})}
  "quoted": {scalar(long)}
  none: null
rules:
  - {scalar(item)}
  - - name: {scalar(label)}
      values: {scalar([*values, long])}
  - expression: |-
      "a" in ["x", "y"]
      values: "x"
---
{scalar({"z": item, "y": values})}
"""
        assert shapes.write(text, "# why\n") == manifest.rewrite(text, "# why\n")


def test_the_text_of_each_file_is_as_the_dumper_writes_it() -> None:
    spec = a_kube_spec()
    texts = {
        path: text
        for path, text in tree(spec, resolve(spec, catalog.load())).items()
        if path.endswith(".yaml")
    }
    for text in texts.values():
        body = re.sub(r"\A(#.*\n)*", "", text)
        assert body == manifest.dump(manifest.documents(body))
    assert len(texts) > 20


@pytest.mark.parametrize("reader", [manifest.documents, manifest.rewrite])
def test_duplicate_key_and_non_mapping_are_refused(reader: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="line 1: a key is already given"):
        reader("a: 1\na: 2\n")
    with pytest.raises(ValueError, match="line 2: a key is already given"):
        reader("a:\n  - {b: 1, b: 2}\n")
    with pytest.raises(ValueError, match="not a mapping"):
        reader("- a\n")


def test_dump_has_no_anchor_and_no_tag() -> None:
    same = {"x": ["y"]}
    text = manifest.dump([{"a": same, "b": same}])
    assert "&" not in text
    assert "*" not in text

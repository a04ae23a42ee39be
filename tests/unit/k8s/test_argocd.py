"""The tree for Argo CD has the same charts and waves as `gpucluster k8s up`.

The health checks run in Lua here. `tests/kubernetes/test_waves.py` builds the folder with the real Kustomize.
"""

from copy import deepcopy
from typing import Any

import lupa
import pytest
import yaml
from support.kube import BOUND, USUAL_WAVES, files
from support.kube_steps import kube_steps
from support.manifests import changed
from support.rendered import rendered

from gpucluster.k8s.argocd import create
from gpucluster.k8s.awaited import CONDITIONS
from gpucluster.k8s.lint import check
from gpucluster.k8s_apply.conditions import waiting

HEALTH = "resource.customizations.health."


def charts(texts: dict[str, str]) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(texts["argocd/charts.yaml"]))


def annotations(texts: dict[str, str], folder: str) -> dict[str, str]:
    """What the overlay of a wave writes on each of its objects."""
    overlay = yaml.safe_load(texts[f"argocd/{folder}/kustomization.yaml"])
    assert overlay["resources"] == [f"../../{folder}"]
    (text,) = overlay["transformers"]
    made = yaml.safe_load(text)
    assert made["fieldSpecs"] == [{"path": "metadata/annotations", "create": True}]
    return made["annotations"]


def waves(texts: dict[str, str]) -> dict[str, int]:
    folders = yaml.safe_load(texts["argocd/kustomization.yaml"])["resources"]
    assert folders[0] == "charts.yaml"
    return {name: int(annotations(texts, name)["argocd.argoproj.io/sync-wave"]) for name in folders[1:]}


def test_each_wave_comes_after_the_one_before_and_after_the_charts() -> None:
    texts = files(bindings=BOUND)
    found = waves(texts)
    assert list(found) == [wave.folder for wave in USUAL_WAVES]
    *before, services, training = found.values()
    assert [*before, services] == sorted({*before, services})
    assert services == training, "a service that waits stops no gang"
    first = {one["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"] for one in charts(texts)}
    assert {int(number) for number in first} == {min(found.values()) - 1}


def test_claims_of_unknown_volumes_hold_up_no_wave() -> None:
    found = waves(files())
    assert found["30-queues"] < found["40-storage"] == found["50-services"] == found["60-training"]


def test_kinds_of_the_charts_may_be_missing_before_the_charts_are_there() -> None:
    options = annotations(files(bindings=BOUND), "20-nodes")["argocd.argoproj.io/sync-options"].split(",")
    assert sorted(options) == ["ServerSideApply=true", "SkipDryRunOnMissingResource=true"]


def test_charts_are_those_of_the_command() -> None:
    texts, steps = files(bindings=BOUND), kube_steps()
    found = {one["metadata"]["name"]: one["spec"] for one in charts(texts)}
    assert list(found) == [f"kube-{one.name}" for one in steps.releases]
    for release in steps.releases:
        spec = found[f"kube-{release.name}"]
        source = spec["source"]
        assert (source["chart"], source["targetRevision"]) == (release.name, release.version)
        assert f"{source['repoURL']}/{release.name}" in release.chart[0] or source["repoURL"] in release.chart
        assert "://" not in source["repoURL"] or not release.repository.startswith("oci://")
        assert source["helm"]["releaseName"] == release.name
        assert source["helm"]["valuesObject"] == (
            yaml.safe_load(texts[release.values]) if release.values else {}
        )
        assert spec["destination"]["namespace"] == release.namespace
        assert spec["syncPolicy"]["automated"] == {"prune": False}


def test_an_application_that_is_deleted_deletes_no_chart() -> None:
    """Karpenter must not go before its machines."""
    assert all("finalizers" not in one["metadata"] for one in charts(files(bindings=BOUND)))


def judged(texts: dict[str, str], key: str, one: dict[str, Any]) -> tuple[str, str]:
    """What Argo CD says of an object: it runs the text in Lua, with the object as `obj`."""
    lua: Any = lupa.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(one, recursive=True)
    found = lua.execute(yaml.safe_load(texts["argocd/settings/argocd-cm.yaml"])["data"][HEALTH + key])
    return found["status"], found["message"]


OURS = [(version, kind) for version, kind in CONDITIONS if "karpenter" not in version]


@pytest.mark.parametrize(("version", "kind"), OURS)
@pytest.mark.parametrize("value", ["True", "False"])
def test_argo_cd_and_the_command_agree_on_ready(version: str, kind: str, value: str) -> None:
    row = {"type": CONDITIONS[version, kind], "status": value, "message": "words"}
    other = {"type": "Other", "status": "True", "message": "other"}
    one = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "a"},
        "status": {"conditions": [row, other]},
    }
    status, message = judged(files(bindings=BOUND), f"{version.partition('/')[0]}_{kind}", one)
    assert (status == "Healthy") is (waiting(one) == "")
    assert message == "words"


@pytest.mark.parametrize(("version", "kind"), OURS)
def test_condition_of_an_older_spec_is_not_ready(version: str, kind: str) -> None:
    row = {"type": CONDITIONS[version, kind], "status": "True", "message": "words", "observedGeneration": 1}
    for generation in (1, 2):
        metadata = {"name": "a", "generation": generation}
        one = {"apiVersion": version, "kind": kind, "metadata": metadata, "status": {"conditions": [row]}}
        status, _ = judged(files(bindings=BOUND), f"{version.partition('/')[0]}_{kind}", one)
        assert (status == "Healthy") is (waiting(one) == "") is (generation == 1)


@pytest.mark.parametrize(("version", "kind"), OURS)
def test_object_that_nobody_has_judged_is_awaited(version: str, kind: str) -> None:
    key = f"{version.partition('/')[0]}_{kind}"
    assert judged(files(bindings=BOUND), key, {"kind": kind}) == (
        "Progressing",
        "no controller has judged it",
    )


@pytest.mark.parametrize(
    ("status", "health"), [(None, "Progressing"), ({"health": {"status": "Degraded"}}, "Degraded")]
)
def test_application_has_the_health_of_its_chart(status: Any, health: str) -> None:
    one = {"kind": "Application", "status": status} if status else {"kind": "Application"}
    assert judged(files(bindings=BOUND), "argoproj.io_Application", one)[0] == health


def test_kinds_with_checks_of_argo_cd_have_none_of_ours() -> None:
    """argoproj/argo-cd v3.6 has resource_customizations/karpenter.sh and karpenter.k8s.aws."""
    data = yaml.safe_load(files(bindings=BOUND)["argocd/settings/argocd-cm.yaml"])["data"]
    known = {f"{version.partition('/')[0]}_{kind}" for version, kind in OURS} | {"argoproj.io_Application"}
    assert set(data) == {f"{HEALTH}{key}" for key in known}


def test_every_tree_has_its_own_names() -> None:
    """Two clusters in one Argo CD do not share an Application."""
    texts = files(("name: kube\n", "name: other\n"), running=(("cluster: kube", "cluster: other"),))
    assert all(one["metadata"]["name"].startswith("other-") for one in charts(texts))
    assert "--path other/k8s/argocd " in create("other")


def test_schema_of_argo_cd_takes_the_charts_and_no_other_field() -> None:
    documents, known = rendered()
    ours = [deepcopy(one.value) for one in documents if one.file.endswith("/argocd/charts.yaml")]
    assert len(ours) == len(charts(files(bindings=BOUND)))
    assert check(ours, known) == ()
    wrong = changed("Application/kube-kueue", "spec/sources1", [], manifests=ours)
    assert [(one.rule, one.path) for one in check(wrong, known)] == [("unknown-field", "spec.sources1")]


def test_only_argo_cds_objects_may_be_in_its_namespace_without_it() -> None:
    documents, known = rendered()
    ours = [
        deepcopy(one.value)
        for one in documents
        if one.file.endswith(("/argocd/charts.yaml", "/argocd-cm.yaml"))
    ]
    other = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "argocd"},
        "data": {},
    }
    assert check(ours, known) == ()
    (found,) = check([*ours, other], known)
    assert (found.rule, found.kind) == ("reference", "ConfigMap")

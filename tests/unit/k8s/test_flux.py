"""The tree for Flux has the same charts and waves as `gpucluster k8s up`."""

from copy import deepcopy
from typing import Any

import cel
import pytest
import yaml
from support.kube import BOUND, USUAL_WAVES, files
from support.kube_steps import kube_steps
from support.manifests import changed
from support.rendered import rendered

from gpucluster.k8s.awaited import CONDITIONS
from gpucluster.k8s.lint import check
from gpucluster.k8s.waves import TRAINING, WAVES
from gpucluster.k8s_apply.conditions import waiting


def documents(path: str, texts: dict[str, str]) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(texts[path]))


def waves(texts: dict[str, str]) -> list[dict[str, Any]]:
    return documents("flux/kustomizations.yaml", texts)


def test_each_wave_waits_for_the_one_before() -> None:
    found = waves(files(bindings=BOUND))
    assert [one["metadata"]["name"] for one in found] == [
        "kube-charts",
        *(f"kube-{wave.folder}" for wave in USUAL_WAVES),
    ]
    after = [[row["name"] for row in one["spec"].get("dependsOn", [])] for one in found]
    assert after[:-1] == [[], *([one["metadata"]["name"]] for one in found[:-2])]
    assert after[-1] == after[-2], "a service that waits stops no gang"
    assert [one["metadata"]["name"] for one in found if not one["spec"]["wait"]] == [
        f"kube-{TRAINING.folder}"
    ]
    assert all(one["spec"]["path"].startswith("./kube/k8s/") for one in found)


def test_claims_of_unknown_volumes_are_not_awaited() -> None:
    waits = {one["metadata"]["name"]: one["spec"]["wait"] for one in waves(files())}
    assert (waits["kube-30-queues"], waits["kube-40-storage"], waits["kube-50-services"]) == (
        True,
        False,
        False,
    )


def test_charts_are_those_of_the_command() -> None:
    texts, steps = files(bindings=BOUND), kube_steps()
    for release in steps.releases:
        source, made = documents(f"flux/charts/{release.name}.yaml", texts)
        spec = made["spec"]
        assert (spec["releaseName"], spec["targetNamespace"]) == (release.name, release.namespace)
        assert spec["values"] == (yaml.safe_load(texts[release.values]) if release.values else {})
        if source["kind"] == "OCIRepository":
            assert (source["spec"]["url"], source["spec"]["ref"]) == (
                release.chart[0],
                {"tag": release.version},
            )
        else:
            assert source["spec"]["url"] == release.chart[-1]
            assert (spec["chart"]["spec"]["chart"], spec["chart"]["spec"]["version"]) == (
                release.name,
                release.version,
            )
    assert {path for path in texts if path.startswith("flux/charts/")} == {
        f"flux/charts/{one.name}.yaml" for one in steps.releases
    }


@pytest.mark.parametrize(("version", "kind"), sorted(CONDITIONS))
@pytest.mark.parametrize(("value", "seen"), [
    ("True", {}), ("False", {}), ("True", {"observedGeneration": 2}), ("True", {"observedGeneration": 1}),
    ("True", {"observedGeneration": 0}),
])  # fmt: skip
def test_flux_and_the_command_agree_on_ready(
    version: str, kind: str, value: str, seen: dict[str, int]
) -> None:
    """Also where the controller has judged an older spec."""
    rows = waves(files(bindings=BOUND))[3]["spec"]["healthCheckExprs"]
    (expression,) = (row["current"] for row in rows if (row["apiVersion"], row["kind"]) == (version, kind))
    status = {"conditions": [{"type": CONDITIONS[version, kind], "status": value, **seen}]}
    metadata = {"name": "a", "generation": 2}
    one = {"apiVersion": version, "kind": kind, "metadata": metadata, "status": status}
    assert cel.evaluate(expression, one) is (waiting(one) == "")


def test_every_tree_has_its_own_names() -> None:
    """Two clusters in one Flux do not share an object."""
    names = {
        one["metadata"]["name"]
        for one in waves(
            files(("name: kube\n", "name: other\n"), running=(("cluster: kube", "cluster: other"),))
        )
    }
    assert all(name.startswith("other-") for name in names)


def test_schemas_of_flux_take_the_tree_and_no_other_field() -> None:
    documents, known = rendered()
    ours = [deepcopy(one.value) for one in documents if "/flux/" in one.file]
    assert len(ours) > len(WAVES)
    assert check(ours, known) == ()
    wrong = changed("Kustomization/kube-charts", "spec/waits", True, manifests=ours)
    assert [(one.rule, one.path) for one in check(wrong, known)] == [("unknown-field", "spec.waits")]


def test_only_kinds_of_flux_may_be_in_its_namespace_without_it() -> None:
    documents, known = rendered()
    ours = [deepcopy(one.value) for one in documents if "/flux/" in one.file]
    other = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "flux-system"},
        "data": {},
    }
    (found,) = check([*ours, other], known)
    assert (found.rule, found.kind) == ("reference", "ConfigMap")

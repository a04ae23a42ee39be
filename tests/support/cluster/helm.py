"""A stand-in of helm over the file of `state`. A killed call leaves its release pending, as the real one does, and then refuses the next."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from support.cluster.state import (
    CLUSTER_SCOPED,
    IN_TEMPLATES,
    OF_CHARTS,
    Begun,
    definitions_of,
    fail,
    stored,
    suffer,
)

Row = dict[str, Any]
BEGIN = "2026-11-25 12:00:00.123456789 +0000 UTC"  # of the clock of `Cluster`
REPOSITORIES = {
    "oci://registry.k8s.io/jobset/charts/jobset": "jobset",
    "oci://registry.k8s.io/kueue/charts/kueue": "kueue",
    "oci://registry.k8s.io/lws/charts/lws": "lws",
    "oci://ghcr.io/kubeflow/charts/kubeflow-trainer": "kubeflow-trainer",
    "oci://public.ecr.aws/karpenter/karpenter": "karpenter",
    "aws-efa-k8s-device-plugin": "aws-efa-k8s-device-plugin",
    "gpu-operator": "gpu-operator",
}
WITHOUT_MARK = (
    "lws",
)  # the files of its folder `crds` begin without `---`, and `helm show crds` prints files as they are
INSIDE = {  # the charts inside a chart: `helm show crds` prints their definitions also where values turn them off
    "kubeflow-trainer": {
        "jobset": "0.12.0",
        "lws": "0.8.0",
    },  # charts/kubeflow-trainer/Chart.yaml of kubeflow/trainer v2.3.0
}


READY = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
MADE = {"app.kubernetes.io/managed-by": "Helm"}  # labels of what a chart makes


def run(begun: Begun) -> tuple[str, str]:
    """Return the problem, or empty, and what it prints."""
    verb, words, flags = begun.verb, begun.words, begun.flags
    if verb in ("upgrade", "rollback"):
        with begun.state.locked() as values:
            problem = _begin(values, verb, words, flags)
        if problem:
            fail(problem)
        suffer(begun.fault, "during")
    with begun.state.locked() as values:
        return _VERBS[verb](values, words, flags)


def _row(values: Row, name: str, namespace: str) -> Row | None:
    return next(
        (row for row in values["releases"] if (row["name"], row["namespace"]) == (name, namespace)), None
    )


def _begin(values: Row, verb: str, words: list[str], flags: dict[str, str]) -> str:
    row = _row(values, words[0], flags["namespace"])
    if verb == "rollback":
        if row is None or row["revision"] < 2:
            return "Error: release: not found"
        row["status"] = "pending-rollback"
        return ""
    if words[1] not in REPOSITORIES or words[1].startswith("oci://") == ("repo" in flags):
        return f"Error: failed to download {words[1]!r}: not found"
    if row is None:
        marks = dict(pair.split("=", 1) for pair in flags.get("labels", "").split(",") if pair)
        row = {
            "name": words[0],
            "namespace": flags["namespace"],
            "revision": 0,
            "labels": marks,
            "values": None,
            "chart": "",
        }
        values["releases"].append(row)
    elif row["status"].startswith("pending-"):
        return "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress"
    elif (
        row["status"] == "uninstalling"
    ):  # helm v3.22, pkg/action/upgrade.go: only failed and superseded ones
        return f'Error: UPGRADE FAILED: "{words[0]}" has no deployed releases'
    row["revision"] += 1
    row["chart"] = f"{REPOSITORIES[words[1]]}-{flags['version']}"
    row["status"] = "pending-install" if row["revision"] == 1 else "pending-upgrade"
    return ""


def _upgrade(values: Row, words: list[str], flags: dict[str, str]) -> tuple[str, str]:

    row = _row(values, words[0], flags["namespace"])
    assert row is not None
    row["values"] = (
        yaml.load(Path(flags["values"]).read_text(), yaml.CSafeLoader) if "values" in flags else None
    )
    row["status"] = "deployed"
    _make(values, row)
    if (
        words[0] in IN_TEMPLATES
    ):  # helm upgrades what a chart has as templates, and only creates what is in its folder `crds`
        values["crds"][words[0]] = flags["version"]
    else:
        values["crds"].setdefault(words[0], flags["version"])
    _make_definitions(values, row)
    return "", f'Release "{words[0]}" has been upgraded. Happy Helming!'


def _objects(row: Row) -> list[Row]:
    """Return what the chart's templates make: its controller, which names no namespace, and a role of the cluster."""
    name = row["name"]
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"{name}-controller", "labels": MADE},
            "spec": {"replicas": 2},
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"{name}-controller", "labels": MADE},
        },
    ]


def _make(values: Row, row: Row) -> None:
    """Create the objects of a release that are not there, and set the number of pods of the others."""
    for one in _objects(row):
        key = _key(one, row["namespace"])
        place = {"namespace": key.split("|")[2]} if key.split("|")[2] else {}
        there = values["objects"].get(key)
        if there is None or there.get("spec") != one.get("spec"):
            values["clock"] += 1
            marks = {
                "resourceVersion": str(values["clock"]),
                "uid": f"uid-{values['clock']}",
                "generation": 1,
            }
            status = {"status": READY} if one["kind"] == "Deployment" else {}
            values["objects"][key] = {**one, **status, "metadata": {**one["metadata"], **place, **marks}}


def _make_definitions(values: Row, row: Row) -> None:
    """Create the definitions that are not there. helm marks those of templates, and none of a folder `crds`."""
    name = row["name"]
    marks = {}
    if name in IN_TEMPLATES:
        release = {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": row["namespace"]}
        marks = {"labels": MADE, "annotations": release}
    for one in definitions_of(name):
        values["objects"].setdefault(_key(one, ""), stored(one, "helm", **marks))


def _key(one: Row, namespace: str) -> str:
    place = "" if one["kind"] in CLUSTER_SCOPED else namespace
    return "|".join((one["apiVersion"], one["kind"], place, one["metadata"]["name"]))


def _get_manifest(values: Row, words: list[str], flags: dict[str, str]) -> tuple[str, str]:
    row = _row(values, words[0], flags["namespace"])
    if row is None:
        return "Error: release: not found", ""
    controller, role = _objects(row)
    shown = controller, {"apiVersion": "v1", "kind": "List", "items": [role]}  # a chart may have lists
    return "", yaml.dump_all(shown, Dumper=yaml.CSafeDumper, explicit_start=True)


def _rollback(values: Row, words: list[str], flags: dict[str, str]) -> tuple[str, str]:
    row = _row(values, words[0], flags["namespace"])
    assert row is not None
    row["status"], row["revision"] = "deployed", row["revision"] + 1
    row["chart"] = "rolled-back"
    return "", "Rollback was a success! Happy Helming!"


def _uninstall(values: Row, words: list[str], flags: dict[str, str]) -> tuple[str, str]:
    row = _row(values, words[0], flags["namespace"])
    if row is None:
        return f"Error: uninstall: Release not loaded: {words[0]}: release: not found", ""
    values["releases"].remove(row)
    for one in _objects(row):
        values["objects"].pop(_key(one, row["namespace"]), None)
    if words[0] in IN_TEMPLATES and words[0] in values["crds"]:
        del values["crds"][words[0]]
        for one in definitions_of(words[0]):
            values["objects"].pop(_key(one, ""), None)
        kinds = {(version, kind) for version, found in OF_CHARTS[words[0]].items() for kind in found}
        values["objects"] = {
            k: o for k, o in values["objects"].items() if (o["apiVersion"], o["kind"]) not in kinds
        }
    return "", f'release "{words[0]}" uninstalled'


def _list(values: Row, words: list[str], flags: dict[str, str]) -> tuple[str, str]:
    key, _, value = flags.get("selector", "").partition("=")
    named = [row for row in values["releases"] if re.search(flags.get("filter", ""), row["name"])]
    most = int(flags.get("max", "256")) or None  # 0: all that the server returns
    rows = [row for row in named if not key or row["labels"].get(key) == value][:most]
    shown = ("name", "namespace", "status", "chart")
    return "", json.dumps(
        [
            {
                **{k: row[k] for k in shown},
                "updated": row.get("updated", BEGIN),
                "revision": str(row["revision"]),
                "app_version": "",
            }
            for row in rows
        ]
    )


def _get_values(values: Row, words: list[str], flags: dict[str, str]) -> tuple[str, str]:
    row = _row(values, words[0], flags["namespace"])
    return ("Error: release: not found", "") if row is None else ("", json.dumps(row["values"]))


def _show_crds(values: Row, words: list[str], flags: dict[str, str]) -> tuple[str, str]:
    if words[0] not in REPOSITORIES or words[0].startswith("oci://") == ("repo" in flags):
        return f"Error: failed to download {words[0]!r}: not found", ""
    name, version = REPOSITORIES[words[0]], flags["version"]
    own = {} if name in IN_TEMPLATES else {name: version}
    files = (
        yaml.dump(stored(one, "", annotations={"of": of, "at": at}), Dumper=yaml.CSafeDumper, explicit_start=of not in WITHOUT_MARK)
        for of, at in {**own, **INSIDE.get(name, {})}.items()
        for one in definitions_of(of)
    )  # fmt: skip
    return "", "\n".join(files)


def _version(values: Row, words: list[str], flags: dict[str, str]) -> tuple[str, str]:
    assert flags["template"] == "{{.Version}}"
    return "", values.get("helm", "v3.18.4")


_VERBS = {
    "version": _version,
    "show crds": _show_crds,
    "upgrade": _upgrade,
    "rollback": _rollback,
    "uninstall": _uninstall,
    "list": _list,
    "get manifest": _get_manifest,
    "get values": _get_values,
}

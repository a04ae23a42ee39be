"""Write src/gpucluster/catalog/data/crds/: the schemas of the custom resources that gpucluster renders or checks.

    .venv/bin/python tools/make_crds.py FOLDER [OWNER/NAME@TAG=MODULE...]

FOLDER has `index.json` (one row for each resource: group, version, kind, scope, served, deprecated, file, repo, ref) and beside it
each resource's openAPIV3Schema as its project releases it, without descriptions and status. MODULE is the folder of a Go module, as
`go mod download` leaves it: its CustomResourceDefinitions are read. All are Apache-2.0.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

DATA = Path(__file__).parent.parent / "src/gpucluster/catalog/data/crds"
READ_ON = "2026-11-21"
LICENCE = "Apache-2.0"
KUEUE = (
    "AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ProvisioningRequestConfig", "ResourceFlavor",
    "Topology", "WorkloadPriorityClass",
)  # fmt: skip
USED = {
    "kueue.x-k8s.io/v1beta2": KUEUE,
    "kueue.x-k8s.io/v1beta1": KUEUE,  # never rendered: for the check of other manifests, which reports them as deprecated
    "jobset.x-k8s.io/v1alpha2": ("JobSet",),
    "karpenter.sh/v1": ("NodeClaim", "NodePool"),
    "trainer.kubeflow.org/v1alpha1": ("ClusterTrainingRuntime", "TrainingRuntime", "TrainJob"),
    "leaderworkerset.x-k8s.io/v1": ("LeaderWorkerSet",),
    "karpenter.sh/v1alpha1": ("NodeOverlay",),
    "karpenter.k8s.aws/v1": ("EC2NodeClass",),
    "nvidia.com/v1": ("ClusterPolicy",),
    "nvidia.com/v1alpha1": ("NVIDIADriver",),
    "helm.toolkit.fluxcd.io/v2": ("HelmRelease",),
    "kustomize.toolkit.fluxcd.io/v1": ("Kustomization",),
    "source.toolkit.fluxcd.io/v1": ("GitRepository", "HelmRepository", "OCIRepository"),
    "argoproj.io/v1alpha1": ("Application",),
    "monitoring.coreos.com/v1": ("PodMonitor", "PrometheusRule", "ServiceMonitor"),
}
IN_MODULES = (
    "config/crd/bases/*.yaml",
    "manifests/crds/*-crd.yaml",
    "example/prometheus-operator-crd/*.yaml",
)
DEPRECATED = {"kueue.x-k8s.io/v1beta1": "kueue.x-k8s.io/v1beta2"}  # the values of Kueue v0.19's own resources


def main() -> None:
    folder = Path(sys.argv[1])
    DATA.mkdir(exist_ok=True)
    rows = [
        _write(row, json.loads((folder / row["file"]).read_text()))
        for row in json.loads((folder / "index.json").read_text())
        if _used(row)
    ]
    rows += [_write(row, schema) for module in sys.argv[2:] for row, schema in _of_module(module)]
    index = {
        "source": "the CustomResourceDefinitions of each project at its tag: openAPIV3Schema, descriptions and status left out",
        "date": READ_ON,
        "licence": LICENCE,
        "resources": sorted(rows, key=lambda row: (row["api_version"], row["kind"])),
    }
    (DATA / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    wanted = sum(len(kinds) for kinds in USED.values())
    print(f"{len(rows)} of {wanted} resources")
    if len(rows) != wanted:
        raise SystemExit(1)


def _used(row: dict[str, Any]) -> bool:
    return row["kind"] in USED.get(f"{row['group']}/{row['version']}", ())


def _of_module(given: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The used resources of the module's CustomResourceDefinitions, and their schemas."""
    project, _, where = given.partition("=")
    repo, _, tag = project.partition("@")
    module = Path(where)
    for path in sorted(path for pattern in IN_MODULES for path in module.glob(pattern)):
        crd = YAML(typ="safe").load(path)  # of YAML 1.2: PyYAML takes a plain `=` for a tag
        for version in crd["spec"]["versions"]:
            names = crd["spec"]["names"]
            row = {
                "group": crd["spec"]["group"],
                "version": version["name"],
                "kind": names["kind"],
                "scope": crd["spec"]["scope"],
                "file": f"{crd['spec']['group']}_{version['name']}_{names['kind'].lower()}.json",
                "repo": repo,
                "ref": tag,
            }
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"].pop("status", None)
            if _used(row):
                yield row, _without_descriptions(schema)


def _without_descriptions(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: value for key, value in schema.items() if not (key == "description" and isinstance(value, str))
    }
    for key in ("properties", "patternProperties"):
        if key in kept:
            kept[key] = {name: _without_descriptions(one) for name, one in kept[key].items()}
    for key in ("items", "additionalProperties", "not"):
        if isinstance(kept.get(key), dict):
            kept[key] = _without_descriptions(kept[key])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in kept:
            kept[key] = [_without_descriptions(one) for one in kept[key]]
    return kept


def _write(row: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    (DATA / row["file"]).write_text(json.dumps(schema, sort_keys=True, separators=(",", ":")) + "\n")
    api_version = f"{row['group']}/{row['version']}"
    return {
        "api_version": api_version,
        "kind": row["kind"],
        "cluster_scoped": row["scope"] == "Cluster",
        "instead": DEPRECATED.get(api_version),
        "file": row["file"],
        "project": row["repo"],
        "tag": row["ref"],
        "licence": LICENCE,
    }


if __name__ == "__main__":
    main()

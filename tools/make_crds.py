"""Write src/gpucluster/catalog/data/crds/: the schemas of the custom resources that gpucluster renders or checks.

    .venv/bin/python tools/make_crds.py FOLDER

FOLDER has `index.json` (one row for each resource: group, version, kind, scope, served, deprecated, file, repo, ref) and beside it
each resource's openAPIV3Schema as its project releases it, without descriptions and status. All are Apache-2.0.
"""

import json
import sys
from pathlib import Path
from typing import Any

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
    "karpenter.sh/v1": ("NodePool",),
    "leaderworkerset.x-k8s.io/v1": ("LeaderWorkerSet",),
    "karpenter.sh/v1alpha1": ("NodeOverlay",),
    "karpenter.k8s.aws/v1": ("EC2NodeClass",),
    "nvidia.com/v1": ("ClusterPolicy",),
    "nvidia.com/v1alpha1": ("NVIDIADriver",),
}
DEPRECATED = {"kueue.x-k8s.io/v1beta1": "kueue.x-k8s.io/v1beta2"}  # the values of Kueue v0.19's own resources


def main() -> None:
    folder = Path(sys.argv[1])
    DATA.mkdir(exist_ok=True)
    rows = [_copy(folder, row) for row in json.loads((folder / "index.json").read_text()) if _used(row)]
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


def _copy(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    schema = json.loads((folder / row["file"]).read_text())
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

"""The real helm, and the charts of a spec as their projects' modules have them (tools/helm).

The GPU operator's module has no version of its chart that the catalog pins: its values are not tried here.
"""

import json
import shutil
from pathlib import Path

from gpucluster import shell
from gpucluster.engine.go import Go, Progress
from gpucluster.sandbox.kubernetes import programs

_HELM = "helm.sh/helm/v3/cmd/helm"
CHARTS = {  # chart -> its folder in a module
    "aws-efa-k8s-device-plugin": ("github.com/aws/eks-charts", "stable/aws-efa-k8s-device-plugin"),
    "jobset": ("sigs.k8s.io/jobset", "charts/jobset"),
    "karpenter": ("github.com/aws/karpenter-provider-aws", "charts/karpenter"),
    "kubeflow-trainer": ("github.com/kubeflow/trainer/v2", "charts/kubeflow-trainer"),
    "kueue": ("sigs.k8s.io/kueue", "charts/kueue"),
    "lws": ("sigs.k8s.io/lws", "charts/lws"),
}
_INSIDE = {
    "kubeflow-trainer": ("jobset", "lws")
}  # helm wants a chart's dependencies also where values turn them off


def find_or_build(progress: Progress) -> Path:
    """Return the folder with `helm` and the charts."""
    flags = ("-buildvcs=false", "-ldflags=-s -w")
    module = programs.module_of("helm", "helm", programs.source_of("helm"), flags)

    def work(go: Go, folder: Path) -> None:
        progress("building helm: about four minutes of CPU the first time")
        go.build(folder / "helm", [_HELM])
        for name, (source, inside) in CHARTS.items():
            shutil.copytree(
                go.folder_of(source) / inside, folder / "charts" / name, copy_function=shutil.copyfile
            )
        for name, others in _INSIDE.items():
            for other in others:
                shutil.copytree(folder / "charts" / other, folder / "charts" / name / "charts" / other)

    return module.find_or_build(work, progress)


class Helm:
    """Renders a chart of the build. It reaches no cluster and no registry."""

    def __init__(self, built: Path, home: Path) -> None:
        self.built, self.home = built, home

    def chart(self, name: str) -> Path:
        return self.built / "charts" / name

    def rendered(self, name: str, namespace: str, values: object, kubernetes: str) -> str:
        """Return the objects of a release as YAML."""
        file = self.home / f"{name}-values.json"
        file.write_text(json.dumps(values))
        argv = [str(self.built / "helm"), "template", name, str(self.chart(name)), "--namespace", namespace]
        argv += ["--values", str(file), "--kube-version", kubernetes, "--include-crds"]
        argv += ["--api-versions", "monitoring.coreos.com/v1"]  # of the cluster, as `helm upgrade` sees it
        return shell.run(argv, env={"HOME": str(self.home), "PATH": ""}).stdout

"""Find or build Kubeflow Trainer. `tools/trainer/go.mod` and `go.sum` pin the build. Only clusters with `kubernetes.trainer` need it."""

import json
import shutil
from pathlib import Path

from gpucluster.engine.go import Go, GoModule, Progress
from gpucluster.sandbox.kubernetes.managers import TRAINER
from gpucluster.sandbox.kubernetes.programs import Programs, module_of, source_of
from gpucluster.shell import run

_MODULE = "github.com/kubeflow/trainer/v2"
_PACKAGE = f"{_MODULE}/cmd/trainer-controller-manager"
_BASES = ("crds", "rbac", "webhook")  # of manifests/base: the rest makes containers, which cannot run here


def find() -> Programs | None:
    """Return an existing build; None if there is none."""
    folder = _module().find()
    return None if folder is None else Programs(folder)


def find_or_build(progress: Progress, programs: Programs) -> Programs:
    """Return the build; make it if it is missing. `programs` has kubectl. HostError says why it cannot be built."""

    def work(go: Go, folder: Path) -> None:
        progress("building Kubeflow Trainer: about three minutes of CPU the first time")
        (folder / "bin").mkdir()
        go.build(folder / "bin" / TRAINER.name, [_PACKAGE])
        made = folder / "manifests"
        # copied, because Go keeps the files of a module read-only
        shutil.copytree(
            go.folder_of(_MODULE) / "manifests/base", made / "base", copy_function=shutil.copyfile
        )
        (made / "whole").mkdir()
        (made / "whole/namespace.yaml").write_text(json.dumps(_NAMESPACE))
        (made / "whole/kustomization.yaml").write_text(json.dumps(_KUSTOMIZATION))
        text = run([str(programs["kubectl"]), "kustomize", str(made / "whole")]).stdout
        (folder / f"{TRAINER.name}.yaml").write_text(text, encoding="utf-8")
        shutil.rmtree(made)

    return Programs(_module().find_or_build(work, progress))


_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TRAINER.namespace}}
_KUSTOMIZATION = {  # as manifests/overlays/manager, without JobSet and the Deployment
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
    "namespace": TRAINER.namespace,
    "resources": ["namespace.yaml", *(f"../base/{name}" for name in _BASES)],
    "secretGenerator": [{"name": TRAINER.secret, "options": {"disableNameSuffixHash": True}}],
}


def _module() -> GoModule:
    flags = ("-buildvcs=false", "-ldflags=-s -w")
    return module_of("trainer", "Kubeflow Trainer", source_of("trainer"), flags)

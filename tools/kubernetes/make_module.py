"""Write go.mod and go.sum beside this file: the module from which the Kubernetes control plane of the tests is built.

    python3 tools/kubernetes/make_module.py

It needs Go and the Go module proxy. A second run writes the same bytes. `go mod tidy` cannot replace it: it ignores build tags,
and the tag leaves out an alpha module of Kueue that has no checksum record.
"""

import json
import os
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
KUBERNETES = "v1.36.2"
STAGING = "v0.36.2"  # Kubernetes publishes its staging folders as modules with this version
TAG = "exclude_scheduler_library"
HEAD = f"""module gpucluster.invalid/kubernetes

go 1.26.0

require (
\tgo.etcd.io/etcd/server/v3 v3.6.8
\tk8s.io/kubernetes {KUBERNETES}
\tsigs.k8s.io/jobset v0.12.0
\tsigs.k8s.io/kueue v0.19.2
\tsigs.k8s.io/kwok v0.8.0
)

// Kueue's alpha feature SchedulerLibraryIntegration needs it. It has no checksum record. The build tag {TAG} leaves its users out.
exclude sigs.k8s.io/scheduler-library v0.1.0-alpha1

tool (
\tgo.etcd.io/etcd/server/v3
\tk8s.io/kubernetes/cmd/kube-apiserver
\tk8s.io/kubernetes/cmd/kube-controller-manager
\tk8s.io/kubernetes/cmd/kube-scheduler
\tk8s.io/kubernetes/cmd/kubectl
\tsigs.k8s.io/jobset
\tsigs.k8s.io/kueue/cmd/kueue
\tsigs.k8s.io/kwok/cmd/kwok
)
"""


def main() -> None:
    (HERE / "go.sum").unlink(missing_ok=True)
    (HERE / "go.mod").write_text(HEAD)
    got = json.loads(_go("mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}"))
    staged = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", Path(got["GoMod"]).read_text(), re.MULTILINE)
    lines = "\n".join(f"\t{name} => {name} {STAGING}" for name in staged)
    (HERE / "go.mod").write_text(f"{HEAD}\nreplace (\n{lines}\n)\n")
    _go("list", f"-tags={TAG}", "-deps", "tool")  # adds the indirect requirements and the checksums


def _go(*args: str) -> str:
    env = {**os.environ, "GOFLAGS": "-mod=mod"}
    argv = ["go", *args]
    return subprocess.run(argv, cwd=HERE, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()

"""Write go.mod and go.sum of the modules that need Kubernetes itself: tools/kubernetes, the control plane, and tools/node, a node.

    python3 tools/make_kubernetes_modules.py [kubernetes|node]

It needs Go and the Go module proxy. A second run writes the same bytes. `go mod tidy` cannot replace it: it ignores build tags,
and the tag leaves out an alpha module of Kueue that has no checksum record.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parent
KUBERNETES = "v1.36.2"
STAGING = "v0.36.2"  # Kubernetes publishes its staging folders as modules with this version
TAG = "exclude_scheduler_library"
HEADS = {
    "kubernetes": f"""module gpucluster.invalid/kubernetes

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
""",
    "node": f"""module gpucluster.invalid/node

go 1.26.0

require (
\tgithub.com/cloudnativelabs/kube-router/v2 v2.1.0
\tgithub.com/coredns/coredns v1.14.7
\tk8s.io/kubernetes {KUBERNETES}
)

tool (
\tgithub.com/cloudnativelabs/kube-router/v2/cmd/kube-router
\tgithub.com/coredns/coredns
\tk8s.io/kubernetes/cmd/kube-proxy
\tk8s.io/kubernetes/cmd/kubelet
\tk8s.io/kubernetes/test/images/agnhost
)
""",
}


def main() -> None:
    for name in sys.argv[1:] or HEADS:
        write(TOOLS / name, HEADS[name])


def write(folder: Path, head: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "go.sum").unlink(missing_ok=True)
    (folder / "go.mod").write_text(head)
    got = json.loads(go(folder, "mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}"))
    staged = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", Path(got["GoMod"]).read_text(), re.MULTILINE)
    lines = "\n".join(f"\t{name} => {name} {STAGING}" for name in staged)
    (folder / "go.mod").write_text(f"{head}\nreplace (\n{lines}\n)\n")
    go(folder, "list", f"-tags={TAG}", "-deps", "tool")  # adds the indirect requirements and the checksums


def go(folder: Path, *args: str) -> str:
    env = {**os.environ, "GOFLAGS": "-mod=mod"}
    argv = ["go", *args]
    return subprocess.run(argv, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()

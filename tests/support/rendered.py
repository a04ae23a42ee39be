"""The rendered kube stack with bindings, as documents of files. The linter's tests plant mistakes in it."""

from functools import cache
from pathlib import Path

from gpucluster import catalog, k8s
from gpucluster.k8s.lint import Document, Facts, facts
from gpucluster.k8s.lint.read import read
from gpucluster.plan.model import Bindings, FileSystemBinding
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.spec import load
from gpucluster.spec.load_workloads import inspect_workloads
from support.builders import kubernetes_of

ROOT = Path(__file__).parents[2]
CHARTS = "k8s/helm/"  # values, no manifests
BOUND = Bindings(
    schema=1,
    region="us-west-2",
    bucket="b",
    secret="s",
    subnets={},
    templates={},
    file_systems={"/data": FileSystemBinding(id="fs-0123456789abcdef0", dns_name="fs.example.org", mount_name="abcd")},
)  # fmt: skip


@cache
def rendered() -> tuple[tuple[Document, ...], Facts]:
    spec = load(ROOT / "stacks/kube.yaml")
    plan = resolve(spec, catalog.load())
    running = inspect_workloads(ROOT / "workloads/kube.yaml", spec).result()
    artifacts = k8s.render(plan, workloads(running, kubernetes_of(plan)), BOUND)
    files = [file for file in artifacts if file.path.endswith(".yaml") and not file.path.startswith(CHARTS)]
    got = [read(file.content.decode(), file.path) for file in files]
    assert not [finding for one in got for finding in one.findings]
    return tuple(document for one in got for document in one.documents), facts(plan)

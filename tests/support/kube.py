"""Rendered manifests for tests: by kind and name, and a whole tree at once."""

from functools import cache
from pathlib import Path
from typing import Any

from gpucluster import catalog, k8s
from gpucluster.k8s.lint.read import read
from gpucluster.k8s.waves import MONITORING, RUNTIMES, WAVES
from gpucluster.plan import codec, plan_json
from gpucluster.plan.model import Bindings, ClusterPlan, FileSystemBinding
from gpucluster.plan.resolve import resolve
from gpucluster.spec import ClusterSpec
from support.builders import a_kube_spec, some_workloads

Change = tuple[str, str]
BOUND = Bindings(
    schema=1,
    region="us-west-2",
    bucket="b",
    secret="s",
    subnets={},
    templates={},
    file_systems={
        "/data": FileSystemBinding(
            id="fs-0123456789abcdef0",
            dns_name="fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
            mount_name="abcdefgh",
        )
    },
)


MONITORED: Change = ("  control_plane: eks\n", "  control_plane: eks\n  monitoring: prometheus-operator\n")
# those of a spec without `monitoring` and `trainer`
USUAL_WAVES = tuple(wave for wave in WAVES if wave not in (MONITORING, RUNTIMES))
STATIC: Change = ("nodes: {min: 1, max: 6}", "nodes: 1")  # no stand-in plays Karpenter
TRAINED: Change = (
    "  control_plane: eks\n",
    "  control_plane: eks\n  trainer: {image: 'registry.example.org/train:2.0', pull_secrets: [registry]}\n",
)
AS_TRAINJOB: Change = (
    "    topology: {required: block}\n",
    "    topology: {required: block}\n    kind: TrainJob\n",
)
PRICED: tuple[Change, ...] = (  # in the region of the price list
    MONITORED, ("us-west-2\n", "us-east-1\n"), ("[us-west-2a]", "[us-east-1a]"), ("zone: us-west-2a", "zone: us-east-1a"),
)  # fmt: skip


def renamed(name: str) -> tuple[Change, ...]:
    """Give the usual spec another name, so that its objects are beside those of other tests."""
    return (
        ("name: kube\n", f"name: {name}\n"),
        ("serving, quota", f"{name}-serving, quota"),
        ("research, quota", f"{name}-research, quota"),
    )


def renamed_workloads(name: str) -> tuple[Change, ...]:
    """The same for its workloads."""
    return (
        ("cluster: kube", f"cluster: {name}"),
        ("team: serving", f"team: {name}-serving"),
        ("team: research", f"team: {name}-research"),
    )


def files(
    *changes: Change, running: tuple[Change, ...] = (), bindings: Bindings | None = None
) -> dict[str, str]:
    """The tree of the usual spec and workloads, changed: path below k8s/ -> text."""
    return dict(_files(changes, running, bindings is not None))


@cache
def _files(changes: tuple[Change, ...], running: tuple[Change, ...], bound: bool) -> dict[str, str]:
    spec = a_kube_spec(*changes)
    return tree(spec, resolve(spec, catalog.load()), running=running, bindings=BOUND if bound else None)


def tree(
    spec: ClusterSpec,
    plan: ClusterPlan,
    *,
    running: tuple[Change, ...] | None = (),
    bindings: Bindings | None = None,
) -> dict[str, str]:
    """`running=None` means no workloads."""
    some = None if running is None else some_workloads(plan, spec, *running)
    return {a.path.removeprefix("k8s/"): a.content.decode() for a in k8s.render(plan, some, bindings)}


def objects(texts: dict[str, str]) -> dict[str, Any]:
    """Every manifest by `Kind/name` or, in a namespace, `Kind/namespace/name`."""
    found: dict[str, Any] = {}
    for path, text in sorted(texts.items()):
        if (
            path.endswith(".yaml")
            and "kustomization" not in path
            and not path.startswith(("argocd/", "flux/", "helm/"))
        ):
            got = read(text, path)
            assert not got.findings
            for one in (document.value for document in got.documents):
                names = [one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]]
                key = "/".join(name for name in names if name)
                assert key not in found, f"{key} twice"
                found[key] = one
    return found


def golden_files(stack: Path) -> dict[str, bytes]:
    """Return the output of `gpucluster render` for a stack with the workloads beside it."""
    from gpucluster.cli.context import resolve_file, workloads_beside
    from gpucluster.cli.render import artifacts_of

    desk = resolve_file(stack)
    made = artifacts_of(desk.plan, workloads_beside(stack, desk)[0])
    assert plan_json.load(codec.dumps(desk.plan)) == desk.plan
    return {artifact.path: artifact.content for artifact in made}

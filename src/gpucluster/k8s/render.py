"""Render a plan to manifests, wave by wave. To add a component: template, View, a row in COMPONENTS.

The text of a template is not the output: it is read strictly and written again in one form.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from gpucluster.artifacts import Artifact
from gpucluster.files import shipped
from gpucluster.k8s import argocd, flux, guide, shapes, waves
from gpucluster.k8s.manifest import Manifest, documents, rewrite, scalar
from gpucluster.k8s.site import Site, site
from gpucluster.k8s.views import (
    charts,
    gangs,
    jobset_specs,
    leader_workers,
    monitoring,
    nodes,
    queues,
    services,
    storage,
    teams,
)
from gpucluster.k8s.waves import Wave
from gpucluster.plan import names
from gpucluster.plan.model import Bindings, ClusterPlan
from gpucluster.plan.model.workloads import Workloads

_KIND = re.compile(r"^apiVersion: (\S+)\nkind: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Component:
    """A template and its wave. `views` yields the name and the View of each file."""

    wave: Wave
    template: str
    views: Callable[[Site], Iterable[tuple[str, Any]]]


def _kueue(of: Site) -> Iterator[tuple[str, charts.Kueue]]:
    """A component whose configuration is text inside a chart's values."""
    config = rewrite(_filled(charts.KUEUE_CONFIG, charts.kueue_config(of)))
    yield "kueue", charts.Kueue(config=scalar(config), monitored=charts.monitored(of))


def _written(
    views: Callable[[Site, gangs.Written], Iterable[tuple[str, Any]]],
) -> Callable[[Site], Iterable[tuple[str, Any]]]:
    """Components with the spec of a JobSet inside."""
    return lambda of: views(of, lambda one: scalar(documents(_filled(jobset_specs.TEMPLATE, one))[0]))


COMPONENTS: tuple[Component, ...] = (
    Component(waves.CHARTS, "values-aws-efa-k8s-device-plugin.yaml.j2", charts.efa_plugins),
    Component(waves.CHARTS, "values-gpu-operator.yaml.j2", charts.gpu_operators),
    Component(waves.CHARTS, "values-kueue.yaml.j2", _kueue),
    Component(waves.CHARTS, "values-karpenter.yaml.j2", charts.karpenters),
    Component(waves.CHARTS, "values-kubeflow-trainer.yaml.j2", charts.trainers),
    Component(waves.NAMESPACES, "namespace.yaml.j2", teams.namespaces),
    Component(waves.NAMESPACES, "monitoring-namespace.yaml.j2", monitoring.namespaces),
    Component(waves.ACCESS, "guard.yaml.j2", teams.guards),
    Component(waves.ACCESS, "team-rules.yaml.j2", teams.team_rules),
    Component(waves.ACCESS, "limits.yaml.j2", teams.limits),
    Component(waves.ACCESS, "network.yaml.j2", teams.networks),
    Component(waves.ACCESS, "service-account.yaml.j2", teams.service_accounts),
    Component(waves.ACCESS, "identity-network.yaml.j2", teams.identity_networks),
    Component(waves.ACCESS, "role.yaml.j2", teams.roles),
    Component(waves.NODES, "nodeclass.yaml.j2", nodes.classes),
    Component(waves.NODES, "nodepool.yaml.j2", nodes.pools),
    Component(waves.NODES, "overlay.yaml.j2", nodes.overlays),
    Component(waves.QUEUES, "priorities.yaml.j2", queues.priorities),
    Component(waves.QUEUES, "workload-priority.yaml.j2", queues.workload_priorities),
    Component(waves.QUEUES, "topology.yaml.j2", queues.topologies),
    Component(waves.QUEUES, "flavor.yaml.j2", queues.flavors),
    Component(waves.QUEUES, "cohort.yaml.j2", queues.cohorts),
    Component(waves.QUEUES, "clusterqueue.yaml.j2", queues.cluster_queues),
    Component(waves.QUEUES, "localqueue.yaml.j2", queues.local_queues),
    Component(waves.STORAGE, "volume-lustre.yaml.j2", storage.lustre_volumes),
    Component(waves.STORAGE, "volume-nfs.yaml.j2", storage.nfs_volumes),
    Component(waves.STORAGE, "claim.yaml.j2", storage.claims),
    Component(waves.MONITORING, "rules.yaml.j2", monitoring.rules),
    Component(waves.MONITORING, "dashboard.yaml.j2", monitoring.dashboards),
    Component(waves.RUNTIMES, "cluster-training-runtime.yaml.j2", _written(gangs.cluster_runtimes)),
    Component(waves.RUNTIMES, "runtime-readers.yaml.j2", gangs.runtime_readers),
    Component(waves.RUNTIMES, "training-runtime.yaml.j2", _written(gangs.runtimes)),
    Component(waves.SERVICES, "service.yaml.j2", services.services),
    Component(waves.SERVICES, "leaderworkerset.yaml.j2", leader_workers.leader_worker_sets),
    Component(waves.SERVICES, "endpoint.yaml.j2", services.endpoints),
    Component(waves.SERVICES, "autoscaler.yaml.j2", services.autoscalers),
    Component(waves.TRAINING, "gang.yaml.j2", _written(gangs.gangs)),
    Component(waves.TRAINING, "trainjob.yaml.j2", _written(gangs.train_jobs)),
    Component(waves.TESTS, "gang.yaml.j2", _written(gangs.nccl_tests)),
)


def render(
    plan: ClusterPlan, workloads: Workloads | None = None, bindings: Bindings | None = None
) -> tuple[Artifact, ...]:
    """Return the whole tree below `k8s/`. ValueError for a plan without Kubernetes."""
    of = site(plan, workloads, bindings)
    texts = {path: text for component in COMPONENTS for path, text in _files(component, of)}
    gitops = flux.flux(of, texts) | argocd.argocd(of, texts)
    texts |= gitops | guide.kustomizations(texts) | guide.pages(of, texts)
    return tuple(Artifact(f"{names.K8S_DIR}/{path}", texts[path].encode()) for path in sorted(texts))


def pod_rules(plan: ClusterPlan) -> tuple[Manifest, ...]:
    """Return the namespaces of the teams, and the admission policies of their pods with their bindings."""
    of = site(plan, None, None)
    rows = (one for one in COMPONENTS if one.views in (teams.namespaces, teams.guards, teams.team_rules))
    return tuple(
        made
        for component in rows
        for _, view in component.views(of)
        for made in documents(_filled(component.template, view))
    )


@cache
def kinds() -> dict[tuple[str, str], Wave]:
    """Return every kind that a tree can have, by apiVersion and kind, with the first wave that has it."""
    found: dict[tuple[str, str], Wave] = {}
    for component in COMPONENTS:
        if component.wave is not waves.CHARTS:
            text = (shipped("templates") / "k8s" / component.template).read_text(encoding="utf-8")
            for pair in _KIND.findall(text):
                found.setdefault(pair, component.wave)
    return found


def _files(component: Component, of: Site) -> Iterator[tuple[str, str]]:
    for stem, view in component.views(of):
        text = shapes.write(_filled(component.template, view), _comment(component.template))
        yield f"{component.wave.folder}/{stem}.yaml", text


def _filled(template: str, view: Any) -> str:
    return _template(template).render({field.name: getattr(view, field.name) for field in fields(view)})


@cache
def _comment(template: str) -> str:
    """Return the header comment of the template, which goes into each file that it makes."""
    lines = (shipped("templates") / "k8s" / template).read_text(encoding="utf-8").splitlines()
    return "".join(
        f"{line}\n" for line in lines[: next(i for i, line in enumerate(lines) if line[:1] != "#")]
    )


@cache
def _template(name: str) -> Template:
    return environment().get_template(name)


@cache
def environment() -> Environment:
    """Return the only Jinja environment for templates."""
    made = Environment(
        loader=FileSystemLoader(shipped("templates") / "k8s"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - every value is JSON already
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals = {}  # jinja's own `namespace` would replace one that a View does not set
    return made

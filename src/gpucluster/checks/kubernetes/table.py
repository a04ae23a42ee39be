"""The table of the checks of a Kubernetes cluster."""

from collections.abc import Mapping
from typing import Any

from gpucluster.checks.check import Check
from gpucluster.checks.kubernetes import api, applied, controllers, instances, nodes

CLUSTER = "cluster"  # the target of what is no part of a pool
_APPLY = "gpucluster k8s up {cluster}"
_API = (f"kube.api@{CLUSTER}",)

_ALL: tuple[Check[Any, Any], ...] = (
    Check(
        id="kube.api",
        tier=0,
        title="the API server answers, with the version of the plan",
        query=api.query_version,
        parse=api.parse_version,
        evaluate=api.evaluate_version,
        want=api.ApiServer,
        remedy="pulumi up --stack {cluster}; aws eks describe-cluster --name {cluster}",
    ),
    Check(
        id="kube.nodes",
        tier=0,
        title="the pool has its nodes: ready, not cordoned, with labels and taints",
        query=nodes.query_nodes,
        parse=nodes.parse_nodes,
        evaluate=nodes.evaluate_nodes,
        want=nodes.PoolNodes,
        remedy="kubectl describe node NODE; kubectl uncordon NODE; pulumi up --refresh --stack {cluster}",
        needs=_API,
    ),
    Check(
        id="kube.offer",
        tier=0,
        title="each node of the pool offers its GPUs, network interfaces, CPUs and memory",
        query=nodes.query_nodes,
        parse=nodes.parse_nodes,
        evaluate=nodes.evaluate_offer,
        want=nodes.PoolNodes,
        remedy="kubectl describe node NODE; kubectl get pods --all-namespaces --field-selector spec.nodeName=NODE",
        needs=_API,
    ),
    Check(
        id="kube.controllers",
        tier=0,
        title="add-ons and controllers have all their pods",
        query=controllers.query_controllers,
        parse=controllers.parse_controllers,
        evaluate=controllers.evaluate_controllers,
        want=controllers.Controllers,
        remedy="kubectl get pods --all-namespaces; kubectl describe deployments --namespace NAMESPACE NAME",
        needs=_API,
    ),
    Check(
        id="kube.charts",
        tier=0,
        title="the charts are deployed, with the plan's versions and values",
        query=applied.query_status,
        parse=applied.parse_charts,
        evaluate=applied.evaluate_charts,
        want=applied.Charts,
        remedy=_APPLY,
        needs=_API,
    ),
    Check(
        id="kube.objects",
        tier=0,
        title="the objects of the spec exist and are as the spec says",
        query=applied.query_status,
        parse=applied.parse_objects,
        evaluate=applied.evaluate_objects,
        want=applied.Objects,
        remedy=_APPLY,
        needs=_API,
    ),
    Check(
        id="kube.launchers",
        tier=0,
        title="Karpenter's NodePools are ready",
        query=applied.query_status,
        parse=applied.parse_launchers,
        evaluate=applied.evaluate_launchers,
        want=applied.Launchers,
        remedy="kubectl describe nodepools,ec2nodeclasses",
        needs=_API,
    ),
    Check(
        id="kube.queues",
        tier=0,
        title="the teams' queues are active",
        query=applied.query_status,
        parse=applied.parse_queues,
        evaluate=applied.evaluate_queues,
        want=applied.Queues,
        remedy="kubectl describe clusterqueues NAME",
        needs=_API,
    ),
    Check(
        id="kube.workloads",
        tier=0,
        title="no gang or service has failed",
        query=applied.query_status,
        parse=applied.parse_workloads,
        evaluate=applied.evaluate_workloads,
        want=applied.Workloads,
        remedy="gpucluster k8s status {cluster}; kubectl describe jobsets,deployments --namespace NAMESPACE NAME",
        needs=_API,
    ),
    Check(
        id="kube.instances",
        tier=0,
        title="each instance is a node, and each node an instance",
        query=instances.query_instances,
        parse=instances.parse_instances,
        evaluate=instances.evaluate_instances,
        want=instances.KubernetesInstances,
        remedy="kubectl get nodes; aws ec2 describe-instances --filters Name=tag:gpucluster:cluster,Values={cluster}",
        needs=_API,
    ),
)

KUBERNETES: Mapping[str, Check[Any, Any]] = {check.id: check for check in _ALL}

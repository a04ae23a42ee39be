"""The kinds of the projects in the catalog, also those without a schema there, and the release that the catalog has."""

from functools import cache

from gpucluster.catalog import crd_schemas

# the CustomResourceDefinitions of each group, in any version
KINDS: dict[str, frozenset[str]] = {
    "argoproj.io": frozenset(
        {"AnalysisRun", "AnalysisTemplate", "AppProject", "Application", "ApplicationSet", "ArgoCD", "ClusterAnalysisTemplate", "ClusterWorkflowTemplate", "ConfigManagementPlugin", "CronWorkflow", "EventBus", "EventSource", "Experiment", "NamespaceManagement", "NotificationsConfiguration", "Rollout", "RolloutManager", "Sensor", "Workflow", "WorkflowArtifactGCTask", "WorkflowEventBinding", "WorkflowTaskResult", "WorkflowTaskSet", "WorkflowTemplate"}
    ),
    "helm.toolkit.fluxcd.io": frozenset({"HelmRelease"}),
    "jobset.x-k8s.io": frozenset({"JobSet"}),
    "karpenter.k8s.aws": frozenset({"AWSNodeTemplate", "EC2NodeClass"}),
    "karpenter.sh": frozenset({"Machine", "NodeClaim", "NodeOverlay", "NodePool", "Provisioner"}),
    "kueue.x-k8s.io": frozenset(
        {"AdmissionCheck", "ClusterQueue", "Cohort", "DynamicResourceAllocationConfig", "LocalQueue", "MultiKueueCluster", "MultiKueueConfig", "ProvisioningRequestConfig", "ResourceFlavor", "Topology", "Workload", "WorkloadPriorityClass"}
    ),
    "kustomize.toolkit.fluxcd.io": frozenset({"Kustomization"}),
    "leaderworkerset.x-k8s.io": frozenset({"DisaggregatedSet", "LeaderWorkerSet"}),
    "monitoring.coreos.com": frozenset(
        {"Alertmanager", "AlertmanagerConfig", "PodMonitor", "Probe", "Prometheus", "PrometheusAgent", "PrometheusRule", "ScrapeConfig", "ServiceMonitor", "ThanosRuler"}
    ),
    "nvidia.com": frozenset(
        {"ClusterPolicy", "DynamoComponentDeployment", "DynamoGraphDeployment", "GPUCluster", "NVIDIADriver"}
    ),
    "source.toolkit.fluxcd.io": frozenset(
        {"ArtifactGenerator", "Bucket", "ExternalArtifact", "GitRepository", "HelmChart", "HelmRepository", "OCIRepository"}
    ),
    "trainer.kubeflow.org": frozenset({"ClusterTrainingRuntime", "TrainJob", "TrainingRuntime"}),
}  # fmt: skip


@cache
def release(group: str) -> str:
    """Return the release of a group's project in the catalog, such as `argo-cd v3.4.0`; "" for a project outside of it."""
    found = {
        f"{crd.project.rpartition('/')[2]} {crd.tag}"
        for (api, _), crd in crd_schemas().items()
        if api.rpartition("/")[0] == group
    }
    return " and ".join(sorted(found))

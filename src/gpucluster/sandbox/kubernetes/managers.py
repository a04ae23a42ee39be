"""Run the managers of Kueue, JobSet and Kubeflow Trainer beside the control plane, with the manifests and webhooks that their projects release.

Their Deployments, Services and ConfigMaps are left out: the manager is a process here, and webhooks are called by URL. Each manager
has the token of its own service account, so the rights that its project gives it are tried too.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpucluster.sandbox.kubernetes.certificates import Authority
from gpucluster.sandbox.kubernetes.control_plane import HOST, ControlPlane, write_kubeconfig
from gpucluster.sandbox.kubernetes.crds import await_established
from gpucluster.sandbox.kubernetes.programs import Programs

_LEFT_OUT = ("Deployment", "APIService", "ConfigMap", "ServiceMonitor", "Service")
_FIRST = ("Namespace", "CustomResourceDefinition")

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a manager listens: ports of the loopback."""

    webhook: int
    health: int
    metrics: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """The facts of a project's manager. `config` returns its configuration."""

    name: str  # of the program
    namespace: str
    account: str  # its service account
    service: str  # of its webhooks
    secret: str  # with its certificates
    config: Callable[["Manager", Addresses, Path], Manifest]  # the folder has its certificates
    fixed: str = ""  # where it reads its certificates, below TMPDIR; empty: where its configuration says

    def certificates(self, plane: Path) -> Path:
        """Return the folder of its certificates, below that of the control plane."""
        return self.temporary(plane) / self.fixed

    def temporary(self, plane: Path) -> Path:
        """Return its TMPDIR, so that two clusters have each their own certificates."""
        return plane / f"{self.name}-certificates"


def jobset() -> Manager:
    """Return JobSet. It writes renewed certificates to a fixed folder, so ours are only read."""
    config = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration"}
    return _of_sigs("jobset", config, renews=False)


def kueue(config: Mapping[str, Any]) -> Manager:
    """Return Kueue with a configuration such as the one that gpucluster renders for the chart.

    It insists on renewing its own certificates: without that it reads them at a fixed path.
    """
    gates = {"VisibilityOnDemand": False}  # its API service would need a Service that leads here
    return _of_sigs("kueue", {**config, "namespace": "kueue-system", "featureGates": gates}, renews=True)


TRAINER = Manager(
    name="kubeflow-trainer",
    namespace="kubeflow-system",
    account="kubeflow-trainer-controller-manager",
    service="kubeflow-trainer-controller-manager",
    secret="kubeflow-trainer-webhook-cert",  # noqa: S106  the name of a Secret
    fixed="k8s-webhook-server/serving-certs",
    config=lambda _, at, __: {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{HOST}:{at.health}"},
        "metrics": {"bindAddress": f"{HOST}:{at.metrics}", "secureServing": False},
        "webhook": {"port": at.webhook, "host": HOST},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
    },
)


def _of_sigs(name: str, config: Mapping[str, Any], *, renews: bool) -> Manager:
    """Return a manager of kubernetes-sigs: the names and configurations of Kueue and JobSet have one form."""

    def full(manager: Manager, at: Addresses, certificates: Path) -> Manifest:
        names = {"webhookServiceName": manager.service, "webhookSecretName": manager.secret}
        return {
            **config,
            "health": {"healthProbeBindAddress": f"{HOST}:{at.health}"},
            "metrics": {**config.get("metrics", {}), "bindAddress": f"{HOST}:{at.metrics}"},
            "webhook": {"port": at.webhook, "host": HOST, "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": renews, **(names if renews else {})},
        }

    return Manager(
        name=name,
        namespace=f"{name}-system",
        account=f"{name}-controller-manager",
        service=f"{name}-webhook-service",
        secret=f"{name}-webhook-server-cert",
        config=full,
    )


def start(plane: ControlPlane, manager: Manager, programs: Programs | None = None) -> int:
    """Apply the manifests of a manager, start it, and return the port of its metrics when it is ready.

    `programs` has its program and manifests, if the control plane's build does not.
    """
    programs = programs or plane.programs
    ports = plane.processes.ports()
    at = Addresses(webhook=next(ports), health=next(ports), metrics=next(ports))
    certificates = manager.certificates(plane.folder)
    files = _certificates(manager, certificates)
    manifests = list(_manifests(programs.manifests(f"{manager.name}.yaml"), manager, at.webhook, files))
    first = [one for one in manifests if one["kind"] in _FIRST]
    hooks = [one for one in manifests if one["kind"].endswith("WebhookConfiguration")]
    rest = [one for one in manifests if one not in first and one not in hooks]
    for one in first:
        plane.client.apply(one)
    await_established(plane.client)
    for one in (*rest, *hooks):
        plane.client.apply(one)
    config = plane.folder / f"{manager.name}.json"
    config.write_text(json.dumps(manager.config(manager, at, certificates)))
    kubeconfig = plane.folder / f"{manager.name}.kubeconfig"
    token = plane.client.token(manager.account, manager.namespace)
    write_kubeconfig(kubeconfig, plane.port, plane.folder / "ca.crt", {"token": token})
    argv = ["env", f"TMPDIR={manager.temporary(plane.folder)}", str(programs[manager.name])]
    argv += [f"--config={config}", f"--kubeconfig={kubeconfig}"]
    plane.processes.start(manager.name, argv)
    plane.processes.await_ready(manager.name, f"http://{HOST}:{at.health}/readyz")
    return at.metrics


def _certificates(manager: Manager, folder: Path) -> dict[str, bytes]:
    """Return the content of the manager's secret, and write what its server reads."""
    authority = Authority(f"{manager.name}-ca")
    inside = f"{manager.service}.{manager.namespace}.svc"
    server = authority.signed(inside, hosts=(inside, HOST))
    own = authority.pair
    folder.mkdir(parents=True)
    (folder / "tls.crt").write_bytes(server.certificate)
    (folder / "tls.key").write_bytes(server.key)
    return {
        "ca.crt": own.certificate,
        "ca.key": own.key,
        "tls.crt": server.certificate,
        "tls.key": server.key,
    }


def _manifests(text: str, manager: Manager, port: int, files: Mapping[str, bytes]) -> Iterator[Manifest]:
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    for one in yaml.load_all(text, _LOADER):
        if not one or one["kind"] in _LEFT_OUT:
            continue
        if one["kind"] == "Secret" and one["metadata"]["name"] == manager.secret:
            one["data"] = data
        for client in _webhooks(one):
            path = client["service"].get("path", "/")
            client.clear()
            client |= {"url": f"https://{HOST}:{port}{path}", "caBundle": data["ca.crt"]}
        yield one


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast on 3 MB of CRDs


def _webhooks(one: Manifest) -> list[Manifest]:
    """Return every `clientConfig` of a manifest."""
    if one["kind"].endswith("WebhookConfiguration"):
        return [hook["clientConfig"] for hook in one["webhooks"]]
    converted = one.get("spec", {}).get("conversion", {}).get("webhook")
    return [converted["clientConfig"]] if converted else []

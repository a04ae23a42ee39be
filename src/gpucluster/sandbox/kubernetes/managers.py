"""Run the managers of Kueue and JobSet beside the control plane, with the manifests and webhooks that their projects release.

Their Deployments, Services and ConfigMaps are left out: the manager is a process here, and webhooks are called by URL. Each manager
has the token of its own service account, so the rights that its project gives it are tried too.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpucluster.sandbox.kubernetes.certificates import Authority
from gpucluster.sandbox.kubernetes.control_plane import HOST, ControlPlane, write_kubeconfig
from gpucluster.sandbox.kubernetes.crds import await_established

_LEFT_OUT = ("Deployment", "APIService", "ConfigMap", "ServiceMonitor", "Service")
_FIRST = ("Namespace", "CustomResourceDefinition")

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manager:
    """The facts of a project's manager."""

    name: str  # of the program and, with suffixes, of its objects
    config: Mapping[str, Any]  # its configuration, apart from addresses
    renews: bool  # whether it insists on renewing its own certificates

    @property
    def namespace(self) -> str:
        return f"{self.name}-system"

    @property
    def service(self) -> str:
        return f"{self.name}-webhook-service"

    @property
    def secret(self) -> str:
        return f"{self.name}-webhook-server-cert"


JOBSET = Manager(
    name="jobset",
    config={"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration"},
    renews=False,  # it writes renewed ones to a fixed folder, so ours are only read
)


def kueue(config: Mapping[str, Any]) -> Manager:
    """Return Kueue with a configuration such as the one that gpucluster renders for the chart."""
    gates = {"VisibilityOnDemand": False}  # its API service would need a Service that leads here
    return Manager(
        name="kueue",
        config={**config, "namespace": "kueue-system", "featureGates": gates},
        renews=True,  # without it Kueue reads certificates at a fixed path
    )


def start(plane: ControlPlane, manager: Manager) -> int:
    """Apply the manifests of a manager, start it, and return the port of its metrics when it is ready."""
    ports = plane.processes.ports()
    webhook, health, metrics = next(ports), next(ports), next(ports)
    certificates = plane.folder / f"{manager.name}-certificates"
    files = _certificates(manager, certificates)
    manifests = list(_manifests(plane, manager, webhook, files))
    first = [one for one in manifests if one["kind"] in _FIRST]
    hooks = [one for one in manifests if one["kind"].endswith("WebhookConfiguration")]
    rest = [one for one in manifests if one not in first and one not in hooks]
    for one in first:
        plane.client.apply(one)
    await_established(plane.client)
    for one in (*rest, *hooks):
        plane.client.apply(one)
    config = plane.folder / f"{manager.name}.json"
    config.write_text(
        json.dumps(_config(manager, certificates, webhook=webhook, health=health, metrics=metrics))
    )
    kubeconfig = plane.folder / f"{manager.name}.kubeconfig"
    token = plane.client.token(f"{manager.name}-controller-manager", manager.namespace)
    write_kubeconfig(kubeconfig, plane.port, plane.folder / "ca.crt", {"token": token})
    program = str(plane.programs[manager.name])
    plane.processes.start(manager.name, [program, f"--config={config}", f"--kubeconfig={kubeconfig}"])
    plane.processes.await_ready(manager.name, f"http://{HOST}:{health}/readyz")
    return metrics


def _certificates(manager: Manager, folder: Path) -> dict[str, bytes]:
    """Return the content of the manager's secret, and write what its server reads."""
    authority = Authority(f"{manager.name}-ca")
    inside = f"{manager.service}.{manager.namespace}.svc"
    server = authority.signed(inside, hosts=(inside, HOST))
    own = authority.pair
    folder.mkdir()
    (folder / "tls.crt").write_bytes(server.certificate)
    (folder / "tls.key").write_bytes(server.key)
    return {
        "ca.crt": own.certificate,
        "ca.key": own.key,
        "tls.crt": server.certificate,
        "tls.key": server.key,
    }


def _manifests(
    plane: ControlPlane, manager: Manager, port: int, files: Mapping[str, bytes]
) -> Iterator[Manifest]:
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    for one in yaml.load_all(plane.programs.manifests(f"{manager.name}.yaml"), _LOADER):
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


def _config(manager: Manager, certificates: Path, *, webhook: int, health: int, metrics: int) -> Manifest:
    renewal: Manifest = {"enable": manager.renews}
    if manager.renews:
        renewal |= {"webhookServiceName": manager.service, "webhookSecretName": manager.secret}
    return {
        **manager.config,
        "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        "metrics": {**manager.config.get("metrics", {}), "bindAddress": f"{HOST}:{metrics}"},
        "webhook": {"port": webhook, "host": HOST, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": renewal,
    }

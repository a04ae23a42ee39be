"""A real control plane for each cluster of the sandbox's EKS. Its nodes are kwok's, one for each instance of a node group."""

import base64
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpucluster.errors import GpuclusterError
from gpucluster.sandbox.aws.eks.planes import Endpoint, Planes
from gpucluster.sandbox.kubernetes import control_plane
from gpucluster.sandbox.kubernetes.authenticator import Authenticator, Identify
from gpucluster.sandbox.kubernetes.client import RefusedError
from gpucluster.sandbox.kubernetes.control_plane import ControlPlane
from gpucluster.sandbox.kubernetes.programs import Programs

log = logging.getLogger(__name__)

Node = Mapping[str, Any]
UrlOf = Callable[[str, int], str]  # cluster and port of its API server -> the address that clients use
Charts = Callable[[ControlPlane], None]  # starts what stands for charts
# the groups of EKS's access policies -> what they may do (aws.eks.tokens.policy_group)
_POLICIES: Mapping[str, str] = {"eks:AmazonEKSClusterAdminPolicy": "cluster-admin"}
_MADE_BY = "gpucluster/sandbox-node"  # a label of nodes that stand for instances


@dataclass(slots=True)
class _Running:
    """A control plane with the thread that holds its processes: the kernel ends them with it."""

    over: threading.Event = field(default_factory=threading.Event)
    plane: ControlPlane | None = None
    thread: threading.Thread | None = None


class RealPlanes(Planes):
    """Starts and ends control planes below `folder`."""

    def __init__(
        self,
        programs: Programs,
        folder: Path,
        identify: Identify,
        *,
        url_of: UrlOf = lambda _, port: f"https://127.0.0.1:{port}",
        charts: Charts = lambda _: None,
    ) -> None:
        self._programs, self._folder, self._url_of, self._charts = programs, folder, url_of, charts
        self._authenticator = Authenticator(identify)
        self._running: dict[str, _Running] = {}

    def start(self, cluster: str, version: str) -> None:
        """Begin to start it. The servers have the version of the build, whatever EKS was asked for."""
        one = self._running[cluster] = _Running()
        one.thread = threading.Thread(
            target=self._hold, args=(cluster, one), name=f"plane-{cluster}", daemon=True
        )
        one.thread.start()

    def ready(self, cluster: str) -> bool:
        """Say whether its API server answers, and its people have their rights."""
        return (known := self._running.get(cluster)) is not None and known.plane is not None

    def plane(self, cluster: str) -> ControlPlane | None:
        """Return the control plane of a cluster that is ready."""
        known = self._running.get(cluster)
        return None if known is None else known.plane

    def endpoint(self, cluster: str) -> Endpoint:
        """Return the address and the authority of a cluster that is ready."""
        plane = self._running[cluster].plane
        if plane is None:
            raise KeyError(cluster)
        authority = (plane.folder / "ca.crt").read_bytes()
        return Endpoint(url=self._url_of(cluster, plane.port), authority=base64.b64encode(authority).decode())

    def end(self, cluster: str) -> None:
        """End its processes and remove its files."""
        known = self._running.pop(cluster, None)
        if known is not None:
            known.over.set()
            if known.thread is not None:
                known.thread.join()

    def close(self) -> None:
        """End everything."""
        for cluster in tuple(self._running):
            self.end(cluster)
        self._authenticator.close()

    def nodes(self, cluster: str, wanted: Sequence[Node]) -> None:
        """Make the nodes of a cluster those of its instances: missing ones come, others go. A kubelet's labels stay as they are."""
        plane = self.plane(cluster)
        if plane is None:
            return
        found = plane.client.list("v1", "Node", labelSelector=_MADE_BY)
        known = {str(one["metadata"]["name"]): one for one in found}
        for one in wanted:
            _register(plane, one, known.get(str(one["metadata"]["name"])))
        for name in known.keys() - {str(one["metadata"]["name"]) for one in wanted}:
            plane.client.delete("v1", "Node", name)

    def _hold(self, cluster: str, one: _Running) -> None:
        folder = self._folder / cluster
        folder.mkdir(parents=True)
        try:
            url = self._authenticator.url(cluster)
            with control_plane.running(self._programs, folder, authenticator=url) as plane:
                for binding in _bindings():
                    plane.client.apply(binding)
                self._charts(plane)
                one.plane = plane
                one.over.wait()
                one.plane = None
        except (GpuclusterError, OSError, RefusedError):
            log.exception("the control plane of %s does not run", cluster)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _register(plane: ControlPlane, node: Node, known: Node | None) -> None:
    """Make a node with its capacity. kwok gives a node without one 1,000 CPUs, and may do so while we write."""
    labels = {**node["metadata"].get("labels", {}), _MADE_BY: "yes"}
    whole = {**node, "metadata": {**node["metadata"], "labels": labels}}
    if known is None:
        plane.client.apply(whole)
    elif known["status"].get("allocatable") != node["status"]["allocatable"]:
        plane.client.patch_status({k: whole[k] for k in ("apiVersion", "kind", "metadata", "status")})


def _bindings() -> Iterator[dict[str, Any]]:
    for group, role in _POLICIES.items():
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": group},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        }

"""A real node beside a control plane: kubelet, containerd, runc, kube-proxy and kube-router, in a network of their own.

The pods are real: what reaches what is decided by the kernel. kube-router enforces network policies here; on EKS the VPC CNI does.

    with real_node.running(programs, node_programs.find_or_build(print), folder, pool, image) as node:
"""

import ctypes
import hashlib
import io
import json
import os
import shlex
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from node_programs import Built
from real_kubernetes import Kubernetes
from support.waiting import eventually

from gpucluster.k8s_apply.objects import is_true
from gpucluster.plan.model.kubernetes import NodePool
from gpucluster.sandbox.capsule.private_mounts import within
from gpucluster.sandbox.kubernetes import control_plane
from gpucluster.sandbox.kubernetes.client import Client
from gpucluster.sandbox.kubernetes.control_plane import SERVICES, ControlPlane
from gpucluster.sandbox.kubernetes.programs import Programs
from gpucluster.sandbox.paths import METADATA_ADDRESS
from gpucluster.shell import run

NAME, ADDRESS, PODS = "node-1", "10.213.0.1", "10.244.0.0/24"
DNS_SERVICE = "10.96.0.10"
PAUSE, DNS_IMAGE = "registry.example.org/pause:1", "registry.example.org/coredns:1"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_SHORT = (Path("/var/lib"), Path("/var/log"), Path("/run"))  # what the node writes there ends with it


@contextmanager
def own_network() -> Iterator[None]:
    """Move this thread, and what it starts, into a new network with a loopback, the node's address and the metadata service's."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "unshare of the network")
        for words in (
            "link set lo up",
            "link add eth0 type veth peer name wire",  # some kernels have no dummy devices
            "link set eth0 up",
            "link set wire up",
            f"addr add {ADDRESS}/24 dev eth0",
            f"addr add {METADATA_ADDRESS}/32 dev eth0",
            f"route add default via {ADDRESS} dev eth0",
        ):
            run(["ip", *words.split()])
        yield
    finally:
        libc.setns(before, _NEW_NETWORK)
        os.close(before)


def packed(name: str, program: Path, entrypoint: Sequence[str]) -> bytes:
    """Return an image of one program, as `docker save` writes it. The same program gives the same bytes."""
    layer = _tar({program.name: program.read_bytes(), "etc/passwd": b"nobody:x:65534:65534::/:/\n"})
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tar({config_name: config, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()})


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class RealNode:
    """A node that runs, with its control plane."""

    plane: ControlPlane
    built: Built

    @property
    def client(self) -> Client:
        return self.plane.client

    @property
    def folder(self) -> Path:
        return self.plane.folder

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process call kubectl with all rights."""
        Kubernetes(self.plane, 0).use(monkeypatch)

    def enforce_policies(self) -> None:
        """Start kube-router's part for network policies."""
        argv = [
            self.built["kube-router"],
            f"--kubeconfig={self.plane.kubeconfig}",
            f"--hostname-override={NAME}",
        ]
        argv += [
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-firewall=true",
            "--enable-cni=false",
        ]
        argv += [f"--service-cluster-ip-range={SERVICES}", "--health-port=20244", "--v=1"]
        self.plane.processes.start("kube-router", [*self.built.environment(), *argv])


@contextmanager
def running(programs: Programs, built: Built, folder: Path, pool: NodePool, image: str) -> Iterator[RealNode]:
    """Start a control plane and a node with the pool's labels and taints, which has agnhost under the name `image`.

    Network policies are not enforced at first. At the end nothing is left of it.
    """
    with own_network(), control_plane.running(programs, folder, address=ADDRESS) as plane:
        plane.processes.end("kwok")  # it would also play the life of the real node
        inside = folder / "node"
        inside.mkdir()
        agnhost, dns = Path(built["agnhost"]), Path(built["coredns"])
        images = {
            "agnhost": packed(image, agnhost, ["/agnhost"]),
            "pause": packed(PAUSE, agnhost, ["/agnhost", "pause"]),
            "coredns": packed(DNS_IMAGE, dns, ["/coredns", "-conf", "/etc/coredns/Corefile"]),
        }
        for name, content in images.items():
            (inside / f"image-{name}.tar").write_bytes(content)
        (inside / "kubelet.json").write_text(json.dumps(_kubelet_config(inside)))
        (inside / "containerd.toml").write_text(_containerd_config(inside, built))
        (inside / "cni").mkdir()
        (inside / "cni/10-pods.conflist").write_text(json.dumps(_CNI))
        (inside / "resolv.conf").write_text("")
        (inside / "start").write_text(_start(plane, built, inside, pool))
        start = [*built.environment(), "sh", "-eux", str(inside / "start")]
        plane.processes.start("node", within(start, tmpfs=_SHORT))
        try:
            proxy = [built["kube-proxy"], f"--kubeconfig={plane.kubeconfig}", f"--hostname-override={NAME}"]
            proxy += ["--proxy-mode=nftables", f"--cluster-cidr={PODS}", "--conntrack-max-per-core=0"]
            plane.processes.start("kube-proxy", [*built.environment(), *proxy])
            for one in _dns():
                plane.client.apply(one)
            node = RealNode(plane, built)
            eventually("the node is ready", lambda: _is_ready(node, "Node", NAME, ""))
            eventually("the name service runs", lambda: _is_ready(node, "Pod", "coredns", "kube-system"))
            yield node
        finally:
            plane.processes.end("node")
            _remove_cgroups(inside)


def _is_ready(node: RealNode, kind: str, name: str, namespace: str) -> bool:
    for program in sorted({"node", "kube-proxy"} - node.plane.processes.pids().keys()):
        raise AssertionError(f"{program} ended: {(node.folder / f'{program}.log').read_text()[-2000:]}")
    found = node.client.get("v1", kind, name, namespace)
    return found is not None and is_true(found, "Ready")


_COREFILE = ".:53 {\n  errors\n  ready\n  kubernetes cluster.local\n}\n"


def _dns() -> Iterator[Mapping[str, Any]]:
    """CoreDNS as EKS has it: the labels and the service by which network policies and the kubelet know it."""
    place = {"name": "coredns", "namespace": "kube-system"}
    reads = [
        {
            "apiGroups": [""],
            "resources": ["endpoints", "services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "coredns"}
    account = {"kind": "ServiceAccount", **place}
    container = {
        "name": "coredns",
        "image": DNS_IMAGE,
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    marks = {"k8s-app": "kube-dns"}
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place}
    yield {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "coredns"}, "rules": reads}
    yield {
        "apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "coredns"}, "roleRef": role, "subjects": [account],
    }  # fmt: skip
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": {"Corefile": _COREFILE}}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": {**place, "labels": marks}, "spec": pod}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": DNS_SERVICE, "selector": marks, "ports": ports},
    }


_CNI = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


def _cgroup(folder: Path) -> str:
    return f"gpucluster-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def _kubelet_config(folder: Path) -> Mapping[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{_cgroup(folder)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": str(folder / "resolv.conf"),
        "evictionHard": {
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
            "memory.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "volumePluginDir": str(folder / "plugins"),
        "localStorageCapacityIsolation": False,
        "maxPods": 200,
        "podPidsLimit": -1,
    }


def _containerd_config(folder: Path, built: Built) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "/run/containerd/containerd.sock"
[{cri}]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
[{cri}.cni]
  bin_dir = "{built.debian}/usr/lib/cni"
  conf_dir = "{folder}/cni"
"""


def _start(plane: ControlPlane, built: Built, folder: Path, pool: NodePool) -> str:
    labels = ",".join(f"{key}={value}" for key, value in pool.labels.items())
    taints = ",".join(f"{one.key}={one.value}:{one.effect}" for one in pool.taints)
    kubelet = [
        built["kubelet"],
        f"--config={folder}/kubelet.json",
        f"--kubeconfig={plane.kubeconfig}",
        f"--hostname-override={NAME}",
        f"--node-ip={ADDRESS}",
        f"--node-labels={labels}",
        f"--register-with-taints={taints}",
        "--root-dir=/var/lib/kubelet",
        "--cert-dir=/var/lib/kubelet/pki",
    ]
    return f"""
if test -e /sys/fs/cgroup/cgroup.controllers; then mkdir -p /sys/fs/cgroup/{_cgroup(folder)}
else
  mkdir -p /sys/fs/cgroup/systemd/{_cgroup(folder)}
  for one in /sys/fs/cgroup/*/; do mkdir -p "$one"{_cgroup(folder)} || true; done
fi
containerd --config {folder}/containerd.toml > {folder}/containerd.log 2>&1 &
until ctr --address /run/containerd/containerd.sock version > /dev/null 2>&1; do sleep 0.1; done
for one in {folder}/image-*.tar; do ctr --address /run/containerd/containerd.sock --namespace k8s.io images import "$one"; done
exec {shlex.join(kubelet)}
"""


def _remove_cgroups(folder: Path) -> None:
    """Remove the cgroups of the node, the deepest first, as soon as their processes have ended."""

    def gone() -> bool:
        tree = Path("/sys/fs/cgroup")
        for root in (*tree.glob(_cgroup(folder)), *tree.glob(f"*/{_cgroup(folder)}")):
            inside = sorted((one for one in root.rglob("*") if one.is_dir()), key=lambda one: -len(one.parts))
            try:
                for one in (*inside, root):
                    one.rmdir()
            except OSError:  # a process that is killed has not ended yet
                return False
        return True

    eventually("the cgroups of the node are empty", gone)

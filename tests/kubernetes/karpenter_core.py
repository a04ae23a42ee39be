"""Karpenter's own core with its cloud of kwok: real node pools, limits, batching, events and removal; machines are objects alone.

Built from Karpenter's module (tools/karpenter). Its servers listen on all addresses of the machine, so the build replaces that by the
loopback. Its node class is KWOKNodeClass: what our EC2NodeClass says is not tried here.
"""

import json
import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpucluster import catalog
from gpucluster.catalog import Machine
from gpucluster.engine.go import Go, Progress
from gpucluster.plan.model.kubernetes import NodePool
from gpucluster.sandbox.kubernetes import programs
from gpucluster.sandbox.kubernetes.control_plane import HOST, ControlPlane

ROOT = Path(__file__).parents[2]
Manifest = dict[str, Any]
MODULE, PACKAGE = "sigs.k8s.io/karpenter", "sigs.k8s.io/karpenter/kwok"
NODE_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
_GATES = "NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=false,NodeOverlay=true,StaticCapacity=false,CapacityBuffer=false"
_OPERATOR = "pkg/operator/operator.go"
_EVERYWHERE, _HERE = 'fmt.Sprintf(":%d"', f'fmt.Sprintf("{HOST}:%d"'
_CRD = "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml"
_PODS = 737  # of the machines with the most network interfaces


def find_or_build(progress: Progress) -> Path:
    """Return the folder with `karpenter` and `nodeclass.yaml`."""
    flags = ("-buildvcs=false", "-ldflags=-s -w")
    module = programs.module_of("karpenter", "Karpenter's core", programs.source_of("karpenter"), flags)

    def work(go: Go, folder: Path) -> None:
        progress("building Karpenter's core: about three minutes of CPU the first time")
        source = go.folder_of(MODULE)
        modfile = _patched(source, folder)
        go.build(folder / "karpenter", [PACKAGE], modfile=modfile)
        (folder / "nodeclass.yaml").write_text((source / _CRD).read_text())
        shutil.rmtree(folder / "source")

    return module.find_or_build(work, progress)


def _patched(source: Path, folder: Path) -> Path:
    """Copy the module, let its two servers listen on the loopback alone, and return a go.mod that takes the copy."""
    copy = folder / "source"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)  # the module's files are read-only
    text = (copy / _OPERATOR).read_text()
    if text.count(_EVERYWHERE) != 2:
        raise AssertionError(f"{_OPERATOR} of Karpenter has another form: adapt karpenter_core.py to it")
    (copy / _OPERATOR).write_text(text.replace(_EVERYWHERE, _HERE))
    pins = (ROOT / "tools/karpenter/go.mod").read_text()
    (folder / "patched.mod").write_text(f"{pins}\nreplace {MODULE} => {copy}\n")
    (folder / "patched.sum").write_text((ROOT / "tools/karpenter/go.sum").read_text())
    return folder / "patched.mod"


def start(
    plane: ControlPlane, built: Path, pools: Iterable[NodePool], *, unavailable: frozenset[str] = frozenset()
) -> None:
    """Start it with the machines of the pools, and return when it is ready. `unavailable`: markets without capacity."""
    plane.client.apply(yaml.safe_load((built / "nodeclass.yaml").read_text()))
    machines = plane.folder / "machines.json"
    machines.write_text(json.dumps(list(_machines(pools, unavailable))))
    ports = plane.processes.ports()
    metrics, health = next(ports), next(ports)
    environment = {
        "KUBECONFIG": str(plane.kubeconfig),
        "SYSTEM_NAMESPACE": "kube-system",
        "KUBERNETES_MIN_VERSION": "1.19.0-0",
    }
    argv = ["env", *(f"{name}={value}" for name, value in environment.items()), str(built / "karpenter")]
    argv += [f"--metrics-port={metrics}", f"--health-probe-port={health}", "--disable-leader-election=true"]
    argv += [f"--feature-gates={_GATES}", f"--instance-types-file-path={machines}", "--log-level=debug"]
    plane.processes.start("karpenter", argv)
    plane.processes.await_ready("karpenter", f"http://{HOST}:{health}/readyz")


def _machines(pools: Iterable[NodePool], unavailable: frozenset[str]) -> Iterable[Manifest]:
    """Yield the machine types of the pools as its cloud of kwok reads them."""
    found: dict[str, Manifest] = {}
    known = catalog.load().machines
    for pool in pools:
        for name in {name for source in pool.sources for name in source.machines}:
            markets = ("spot", "on-demand")
            offers = [
                _offer(market, zone, market not in unavailable) for market in markets for zone in pool.zones
            ]
            found[name] = {
                "name": name,
                "offerings": offers,
                "architecture": pool.arch,
                "operatingSystems": ["linux"],
                "resources": _allocatable(known[name]),
            }
    return found.values()


def _allocatable(machine: Machine) -> Mapping[str, str]:
    """What aws/karpenter-provider-aws expects of a machine before it has seen one (1d927085d, pkg/providers/instancetype/types.go).

    memory, computeCapacity, kubeReservedResources, evictionThreshold, with its default of 7.5 % for VMMemoryOverheadPercent. The cloud of
    kwok subtracts 100m and 10Mi itself. No resource that is not in computeCapacity: neither huge pages nor slices of GPUs.
    """
    milli = machine.vcpus * 1000
    reserved = 60 + 10 + 10 + (milli - 4000) * 0.0025  # of machines with more than four CPUs
    memory = machine.memory_mib - math.ceil(machine.memory_mib * 0.075) - (11 * _PODS + 255) - 100
    resources = {
        "cpu": f"{milli - math.ceil(reserved) + 100}m",
        "memory": f"{memory + 10}Mi",
        "pods": str(_PODS),
    }
    gpus = 0 if machine.gpu is None else machine.gpu.count
    return {**resources, "nvidia.com/gpu": str(gpus), "vpc.amazonaws.com/efa": str(machine.efa)}


def _offer(market: str, zone: str, available: bool) -> Mapping[str, Any]:
    rows = {"karpenter.sh/capacity-type": market, "topology.kubernetes.io/zone": zone}
    wanted = [{"key": key, "operator": "In", "values": [value]} for key, value in rows.items()]
    return {"Price": 1.0 if market == "spot" else 3.0, "Available": available, "Requirements": wanted}


def node_class() -> Manifest:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": NODE_CLASS["kind"],
        "metadata": {"name": NODE_CLASS["name"]},
        "spec": {},
    }


def on_kwok(one: Manifest) -> Manifest:
    """Return a rendered NodePool with the node class of its cloud."""
    spec = one["spec"]
    template = {**spec["template"], "spec": {**spec["template"]["spec"], "nodeClassRef": NODE_CLASS}}
    return {**one, "spec": {**spec, "template": template}}

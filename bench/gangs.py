"""Real Kueue with 1,000 nodes of kwok and 500 queued gangs of two nodes: rendered objects beside the fewest that do the same.

The queue is stopped while the gangs come, so only admission is measured. Rendered gangs are placed by topology; the others are not.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.figure import Figure, figure
from gpucluster import catalog, k8s
from gpucluster.k8s.manifest import documents
from gpucluster.k8s.waves import WAVES
from gpucluster.k8s_apply.objects import is_true
from gpucluster.plan import names
from gpucluster.plan.model import KubernetesOnAws
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.sandbox.kubernetes import charts, control_plane, nodes, programs
from gpucluster.sandbox.kubernetes.client import Client
from gpucluster.spec import inspect_text, inspect_workloads_text

# A pool in each zone: with 16 addresses for the pods of a node, the subnet of a zone has room for 470 nodes.
ZONES, EACH, GANGS = "abc", 334, 500
NODES = len(ZONES) * EACH
LIMIT = 1.5  # times the fewest objects
BOUND_S = 1800.0
JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
WORKLOAD = ("kueue.x-k8s.io/v1beta2", "Workload")
_POOL = "  - {{name: tune-{zone}, nodes: {nodes}, capacity: [{{from: on-demand, machines: [p4de.24xlarge], zones: [us-west-2{zone}]}}]}}\n"
SPEC = f"""\
schema: 1
name: many
aws:
  region: us-west-2
  network: {{cidr: 10.60.0.0/16, zones: [{", ".join(f"us-west-2{zone}" for zone in ZONES)}]}}
kubernetes:
  version: "1.36"
  control_plane: eks
  teams: [{{name: research, quota: {{nvidia.com/gpu: {NODES * 8}}}}}]
pools:
{"".join(_POOL.format(zone=zone, nodes=EACH) for zone in ZONES)}"""
RUNNING = """\
schema: 1
cluster: many
train:
  - {name: tune, team: research, image: registry.example.org/train:2.0, nodes: 2, gpus_per_node: 8}
"""
Manifest = dict[str, Any]


def run() -> Iterator[Figure]:
    """Start, waves and admission in seconds, and admission as a multiple of that of the fewest objects."""
    spec = inspect_text(SPEC, "many.yaml", catalog.load()).result()
    plan = resolve(spec, catalog.load())
    assert isinstance(plan, KubernetesOnAws)
    read = inspect_workloads_text(RUNNING, "workloads.yaml", spec, catalog.load()).result()
    texts = {
        one.path: one.content.decode() for one in k8s.render(plan, workloads(read, plan.kubernetes), None)
    }
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with control_plane.running(programs.find_or_build(print), Path(folder)) as plane:
            charts.stand_in(plane, plan)
            yield base("gangs.control_plane", time.monotonic() - began)
            for pool in plan.kubernetes.pools:
                for machine in nodes.of_pool(
                    "many", pool, EACH, domains={"topology.k8s.aws/network-node-layer-2": 50}
                ):
                    nodes.start(plane.client, machine)
            began = time.monotonic()
            (gang,) = apply_waves(plane.client, texts)
            yield base("gangs.waves", time.monotonic() - began)
            ours = admission_s(plane.client, gang, "many-research")
            for one in minimal():
                plane.client.apply(one)
            fewest = admission_s(plane.client, bare_gang(), "minimal")
            yield base("gangs.admission", ours)
            yield figure("gangs.admission.over_fewest_objects", ours / fewest, "x", LIMIT)
            began = time.monotonic()
        yield base("gangs.control_plane.end", time.monotonic() - began)


def base(name: str, seconds: float) -> Figure:
    """A time for comparison, without a limit."""
    return figure(name, seconds, "s", seconds)


def apply_waves(client: Client, texts: Mapping[str, str]) -> list[Manifest]:
    """Apply every wave, and return the gangs without applying them."""
    gangs: list[Manifest] = []
    for wave in WAVES:
        for path in sorted(
            path for path in texts if path.startswith(f"k8s/{wave.folder}/") and "kustomization" not in path
        ):
            for one in documents(texts[path]):
                if one["kind"] == "JobSet":
                    gangs.append(one)
                else:
                    client.apply(one)
    return gangs


def admission_s(client: Client, gang: Manifest, queue: str) -> float:
    """Return the seconds from the start of the queue until every gang is admitted. The gangs are gone afterwards."""
    space = gang["metadata"]["namespace"]
    hold(client, queue, "Hold")
    for number in range(GANGS):
        one = json.loads(json.dumps(gang))
        one["metadata"]["name"] = f"gang-{number}"
        if "network" in one["spec"]:
            one["spec"]["network"]["subdomain"] = f"gang-{number}"
        client.apply(one)
    until(lambda: len(client.list(*WORKLOAD, space)) == GANGS)
    began = time.monotonic()
    hold(client, queue, "None")
    until(lambda: sum(map(admitted, client.list(*WORKLOAD, space))) == GANGS)
    taken = time.monotonic() - began
    until(lambda: sum(map(runs, client.list("v1", "Pod", space))) == 2 * GANGS)
    for number in range(GANGS):
        client.delete(*JOBSET, f"gang-{number}", space)
    until(lambda: not client.list("v1", "Pod", space) and not client.list(*WORKLOAD, space))
    return taken


def hold(client: Client, queue: str, policy: str) -> None:
    found = client.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", queue)
    assert found is not None
    spec = {**found["spec"], "stopPolicy": policy}
    client.apply(
        {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": {"name": queue}, "spec": spec}
    )


def admitted(one: Manifest) -> bool:
    return is_true(one, "Admitted")


def runs(pod: Manifest) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def until(there: Callable[[], bool]) -> None:
    """Return when it is so. A real control plane is asked twice a second."""
    limit = time.monotonic() + BOUND_S
    while not there():
        if time.monotonic() > limit:
            raise SystemExit("bench gangs: the cluster did not come to rest")
        time.sleep(0.5)


def minimal() -> Iterator[Manifest]:
    """A namespace with a queue of GPUs, and nothing else."""
    version = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    group = {
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [
            {"name": "minimal", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": str(NODES * 8)}]}
        ],
    }
    managed = {
        names.LABEL_CLUSTER: "many"
    }  # Kueue leaves out other namespaces, also jobs with the label of a queue
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "minimal", "labels": managed}}
    yield {**version, "kind": "ResourceFlavor", "metadata": {"name": "minimal"}, "spec": {}}
    yield {
        **version,
        "kind": "ClusterQueue",
        "metadata": {"name": "minimal"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }
    yield {
        **version,
        "kind": "LocalQueue",
        "metadata": {"name": "default", "namespace": "minimal"},
        "spec": {"clusterQueue": "minimal"},
    }


def bare_gang() -> Manifest:
    container = {
        "name": "train",
        "image": "registry.example.org/train:2.0",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container], "tolerations": [{"operator": "Exists"}]}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": pod}}
    labels = {"kueue.x-k8s.io/queue-name": "default"}
    metadata = {"name": "gang", "namespace": "minimal", "labels": labels}
    spec = {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]}
    return {"apiVersion": JOBSET[0], "kind": JOBSET[1], "metadata": metadata, "spec": spec}

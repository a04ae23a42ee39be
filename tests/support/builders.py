"""Values for tests: each builder makes a small, valid value, and takes the changes that a test needs.

Specs and plans are frozen, so each text is read and resolved once in a process.
"""

from functools import cache

from gpucluster import catalog
from gpucluster.plan.model import ClusterPlan, ImageByName, KubernetesOnAws, SlurmOnAws, SlurmOnHosts
from gpucluster.plan.model.kubernetes import Kubernetes
from gpucluster.plan.model.workloads import Workloads
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.spec import ClusterSpec, inspect_text, inspect_workloads_text

SPEC = """\
schema: 1
name: burst
aws:
  region: us-east-2
  network:
    cidr: 10.42.0.0/16
    zones: [us-east-2a, us-east-2b]
slurm:
  version: "24.11"
head:
  machine: m7i.2xlarge
pools:
  - name: h200
    nodes: {min: 0, max: 16}
    idle: 5m
    capacity:
      - {from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}
      - {from: on-demand, machines: [p5en.48xlarge], max: 4}
partitions:
  - {name: gpu, pools: [h200], default: true, max_time: 1d}
accept: [{id: head-state, because: it lives as long as a test}, {id: no-way-in, because: no person uses it}, {id: slurm-support, because: it has facts of its own, until: 2099-12-31}]
"""


def a_spec_text(*changes: tuple[str, str]) -> str:
    """SPEC with each `(old, new)` replaced. An `old` that does not occur exactly once is a mistake of the test."""
    text = SPEC
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times in the spec")
        text = text.replace(old, new)
    return text


@cache
def a_spec(*changes: tuple[str, str]) -> ClusterSpec:
    """Return a valid spec."""
    return inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load()).result()


def on_aws(plan: ClusterPlan) -> SlurmOnAws:
    """The same plan; AssertionError if it is of another kind of cluster."""
    assert isinstance(plan, SlurmOnAws)
    return plan


def on_hosts(plan: ClusterPlan) -> SlurmOnHosts:
    """The same plan; AssertionError if it is of another kind of cluster."""
    assert isinstance(plan, SlurmOnHosts)
    return plan


def kubernetes_of(plan: ClusterPlan) -> Kubernetes:
    """The part of the plan; AssertionError if it has none."""
    assert plan.kubernetes is not None
    return plan.kubernetes


def image_name_of(plan: SlurmOnAws) -> str:
    """The name of the image that Slurm's machines boot from."""
    assert isinstance(plan.image, ImageByName)
    return plan.image.name


@cache
def a_plan(*changes: tuple[str, str]) -> SlurmOnAws:
    """The plan of that spec: two zones, one pool of up to sixteen H200 nodes, spot first."""
    return on_aws(resolve(a_spec(*changes), catalog.load()))


LAB = """\
schema: 1
name: lab
hosts: {ssh: {user: admin}, head: {name: ctl0, address: 192.0.2.10}}
slurm:
  version: "26.05"
  topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}
users:
  - {name: vision, uid: 5001}
storage:
  - {mount: /home, nfs: {from: head, export: /srv/home}}
machines:
  hgx-h100:
    {sockets: 2, cores_per_socket: 56, threads_per_core: 2, memory: 2000GiB, gpus: {model: h100, count: 8}}
pools:
  - {name: h100, machine: hgx-h100, hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"}
partitions:
  - {name: gpu, pools: [h100], default: true}
"""


def a_lab_text(*changes: tuple[str, str]) -> str:
    """LAB, a cluster on hosts that exist, with each `(old, new)` replaced."""
    text = LAB
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times in the spec")
        text = text.replace(old, new)
    return text


@cache
def a_lab_plan(*changes: tuple[str, str]) -> SlurmOnHosts:
    """The plan of that spec: a head, one pool of four H100 hosts below two leaves and a spine."""
    spec = inspect_text(a_lab_text(*changes), "lab.yaml", catalog.load()).result()
    return on_hosts(resolve(spec, catalog.load()))


KUBE = """\
schema: 1
name: kube
aws:
  region: us-west-2
  network: {cidr: 10.60.0.0/16, zones: [us-west-2a]}
kubernetes:
  version: "1.36"
  control_plane: eks
  teams:
    - {name: serving, quota: {nvidia.com/mig-1g.10gb: 28}, may_borrow: true}
    - {name: research, quota: {nvidia.com/gpu: 32}}
storage:
  - {mount: /data, fsx_lustre: {zone: us-west-2a, size: 2400GiB}}
pools:
  - name: tune
    nodes: 4
    capacity: [{from: on-demand, machines: [p4de.24xlarge]}]
  - name: serve
    nodes: {min: 1, max: 6}
    sharing: {mig: {1g.10gb: 7}}
    capacity: [{from: spot, machines: [p4de.24xlarge]}]
"""

SERVICES = """\
serve:
  - name: chat
    team: serving
    image: registry.example.org/chat:1.4
    resources: {nvidia.com/mig-1g.10gb: 1}
    replicas: {min: 2, max: 8}
    scale_on: {queue_depth: 10}
"""

WORKLOADS = f"""\
schema: 1
cluster: kube
{SERVICES}train:
  - name: tune
    team: research
    image: registry.example.org/train:2.0
    nodes: 4
    gpus_per_node: 8
    topology: {{required: block}}
"""


def changed(text: str, *changes: tuple[str, str]) -> str:
    """The text with each `(old, new)` replaced. An `old` that does not occur exactly once is a mistake of the test."""
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times in the text")
        text = text.replace(old, new)
    return text


@cache
def a_kube_spec(*changes: tuple[str, str]) -> ClusterSpec:
    """KUBE, changed: a static pool of four nodes with EFA, and an elastic one with sliced GPUs."""
    return inspect_text(changed(KUBE, *changes), "kube.yaml", catalog.load()).result()


@cache
def a_kube_plan(*changes: tuple[str, str]) -> KubernetesOnAws:
    """The plan of that spec."""
    plan = resolve(a_kube_spec(*changes), catalog.load())
    assert isinstance(plan, KubernetesOnAws)
    return plan


def some_workloads(plan: ClusterPlan, spec: ClusterSpec, *changes: tuple[str, str]) -> Workloads:
    """WORKLOADS, changed: a service and a gang on the cluster of `spec` and `plan`."""
    text = changed(WORKLOADS, *changes)
    read = inspect_workloads_text(text, "workloads.yaml", spec, catalog.load()).result()
    return workloads(read, kubernetes_of(plan))


UNEQUAL = """\
schema: 1
name: mixed
aws:
  region: us-east-2
  network: {cidr: 10.42.0.0/16, zones: [us-east-2a, us-east-2b]}
slurm: {version: "24.11"}
head: {machine: m7i.2xlarge}
pools:
  - name: small
    nodes: {min: 1, max: 4}
    idle: 10m
    boot_timeout: 10m
    capacity: [{from: on-demand, machines: [g5.12xlarge]}]
  - name: large
    nodes: {min: 0, max: 8}
    idle: 5m
    boot_timeout: 30m
    capacity: [{from: spot, machines: [p5en.48xlarge]}]
partitions:
  - {name: all, pools: [small, large], default: true, max_time: 2d}
accept: [{id: head-state, because: it lives as long as a test}, {id: slurm-support, because: it has facts of its own, until: 2099-12-31}]
"""


def an_unequal_plan(*changes: tuple[str, str]) -> SlurmOnAws:
    """Two pools that differ in all fields: GPUs, CPUs per GPU, memory, sizes, idle time, boot timeout."""
    spec = inspect_text(changed(UNEQUAL, *changes), "mixed.yaml", catalog.load()).result()
    return on_aws(resolve(spec, catalog.load()))

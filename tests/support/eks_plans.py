"""Plans of clusters on EKS for tests: the stack with every option, and the same beside Slurm."""

from dataclasses import replace
from functools import cache, partial

from gpucluster.aws.program import declare
from gpucluster.catalog import load as load_catalog
from gpucluster.files import checkout
from gpucluster.plan.model import AwsPlan, KubernetesOnAws, SlurmOnAws
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load as load_spec
from support.builders import a_kube_plan, a_kube_spec
from support.declared import Declared, declared_by

ADMIN, BOTH, PERSON = (f"arn:aws:iam::123456789012:role/{word}" for word in ("platform", "lead", "vision"))
_TEAM = "name: research, quota: {nvidia.com/gpu: 32}"
EVERYTHING = (
    (
        _TEAM,
        f"{_TEAM}, members: [{BOTH}, {PERSON}], service_accounts: [{{name: trainer, read: [s3://example-data/sets], write: [s3://example-data/checkpoints]}}]",
    ),
    (
        "control_plane: eks",
        f"control_plane: eks\n  admins: [{ADMIN}, {BOTH}]\n  api_from: [10.0.0.0/8, 198.51.100.0/24]",
    ),
)


def resources_of(plan: AwsPlan) -> tuple[Declared, ...]:
    """Return the resources that the program declares for the plan."""
    return declared_by(partial(declare, plan))


@cache
def the_stack() -> KubernetesOnAws:
    """Return the plan of stacks/kube.yaml."""
    root = checkout()
    assert root is not None
    plan = resolve(load_spec(root / "stacks/kube.yaml"), load_catalog())
    assert isinstance(plan, KubernetesOnAws)
    return plan


@cache
def everything() -> KubernetesOnAws:
    """Return the plan of a spec with every option of EKS."""
    return a_kube_plan(*EVERYTHING)


@cache
def hybrid() -> SlurmOnAws:
    """Return the plan of `everything` with a pool of Slurm in the same VPC."""
    slurm = (
        "pools:\n",
        """\
slurm: {version: "26.05"}
head: {machine: m7i.2xlarge}
partitions: [{name: gpu, pools: [train]}]
pools:
  - {name: train, runs: slurm, nodes: {min: 0, max: 4}, capacity: [{from: on-demand, machines: [p4de.24xlarge]}]}
""",
    )
    runs = [(f"- name: {name}\n", f"- name: {name}\n    runs: kubernetes\n") for name in ("tune", "serve")]
    plan = resolve(a_kube_spec(*EVERYTHING, *runs, slurm), load_catalog())
    assert isinstance(plan, SlurmOnAws)
    return plan


BLOCK, RESERVATION = "cr-0fedcba9876543210", "cr-0123456789abcdef0"
PREPAID = (
    (
        "[{from: on-demand, machines: [p4de.24xlarge]}]",
        f"[{{from: capacity-block, id: {BLOCK}, machines: [p5.48xlarge], zones: [us-west-2a]}}]",
    ),
    (
        "[{from: spot, machines: [p4de.24xlarge]}]",
        f"[{{from: reservation, id: {RESERVATION}, machines: [p4de.24xlarge], zones: [us-west-2a]}}]",
    ),
)


@cache
def prepaid() -> KubernetesOnAws:
    """Return the plan of a capacity block and a reservation."""
    return a_kube_plan(*PREPAID)


def with_plane(**changes: object) -> KubernetesOnAws:
    """Return the plan with a changed control plane."""
    plan = a_kube_plan()
    plane = replace(plan.kubernetes.control_plane, **changes)  # pyright: ignore[reportArgumentType]
    return replace(plan, kubernetes=replace(plan.kubernetes, control_plane=plane))


def with_aws(**changes: object) -> KubernetesOnAws:
    """Return the plan with changed fields of `aws`."""
    plan = a_kube_plan()
    return replace(plan, aws=replace(plan.aws, **changes))  # pyright: ignore[reportArgumentType]

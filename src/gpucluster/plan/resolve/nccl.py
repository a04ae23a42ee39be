"""A test of NCCL for each pool of a team: a gang of two whole nodes. Pure."""

from gpucluster.files import shipped
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.model.kubernetes import Kubernetes
from gpucluster.plan.model.values import EFA, GANG, GPU, JOBSET
from gpucluster.plan.model.workloads import Gang
from gpucluster.plan.quota_shares import TeamPool, of_node
from gpucluster.plan.resolve.pods import FABRIC, fabric_env, places_of, shm_mib, without
from gpucluster.spec.workloads import NcclTest

NODES = 2


def tested(place: TeamPool) -> bool:
    """Whether two whole nodes of the pool fit the team's share. Slices of GPUs have no NCCL between nodes."""
    gpus = place.node.get(GPU, 0)
    return gpus > 0 and place.pods({GPU: gpus}) >= NODES


def tests(requested: NcclTest, kubernetes: Kubernetes) -> tuple[Gang, ...]:
    found = (place.pool for place in places_of(kubernetes, requested.team) if tested(place))
    return tuple(_test(requested, kubernetes, pool) for pool in found)


def _test(requested: NcclTest, kubernetes: Kubernetes, name: str) -> Gang:
    pool = kubernetes.pool(name)
    gpus = pool.allocatable[GPU]
    resources = of_node(pool, {GPU: gpus})
    fabric = resources.get(EFA, 0) > 0
    program = (shipped("templates") / "nccl" / "all_reduce.py").read_text(encoding="utf-8")
    return Gang(
        name=f"{names.NCCL_TEST_PREFIX}{name.replace('.', '-')}",
        team=requested.team,
        priority=GANG,
        service_account=None,
        image=requested.image,
        pull_secrets=requested.pull_secrets,
        command=("torchrun", "--no-python", "python3", "-c"),
        args=(program,),
        env={},
        secrets=(),
        fabric_env=fabric_env([pool], NODES, fabric=fabric),
        kind=JOBSET,
        nodes=NODES,
        gpus_per_node=gpus,
        resources=resources if fabric else without(resources, FABRIC),
        shm_mib=shm_mib(None, resources),
        pools=(name,),
        fabric=fabric,
        required_level=None,
        preferred_level=None,
        anywhere=bool(pool.levels),
        restarts=0,
        checkpoint=None,
        grace_s=int(kube.GRACE_S.value),
    )

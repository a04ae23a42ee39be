"""Plans of each kind of cluster on AWS, made from the burst plan by what differs."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

from builders import a_plan
from declared import Declared, declared_by

from gpucluster.aws.program import declare
from gpucluster.plan.model import (
    Access,
    Budget,
    ClusterPlan,
    Directory,
    Efs,
    Follow,
    Image,
    Jobs,
    Login,
    Lustre,
    LustreLink,
    Mount,
    Network,
    Nfs,
    Nvme,
    OtherMount,
    Pool,
    Standby,
    Subnet,
    Volume,
    there,
)

ZONE, OTHER_ZONE = "us-east-2a", "us-east-2b"
JOBS = Jobs(read=("s3://example-data/sets",), write=("s3://example-data/checkpoints",))
BOUNDARY = "arn:aws:iam::123456789012:policy/site-boundary"
BIND_SECRET = "arn:aws:secretsmanager:us-east-2:123456789012:secret:ldap-1"
LINK = LustreLink(path="/", s3="s3://example-data", imports=(Follow.NEW,), exports=(Follow.CHANGED,))
HOME = Mount(path="/home", efs=Efs())
DATA = Mount(path="/data", lustre=Lustre(zone=ZONE, size_gib=4800, throughput=250, links=(LINK,)))
STATE = Volume(key="state", size_gib=100, path="/srv/gpucluster-state")
APPS = Volume(key="nfs-apps", size_gib=200, path="/apps")
LOGIN = Login(machine="m7i.xlarge", zone=ZONE, names=("burst-login-1",))


@cache
def declared_of(plan: ClusterPlan) -> tuple[Declared, ...]:
    """What the program declares for it; a program takes a third of a second."""
    return declared_by(partial(declare, plan))


Change = Callable[[ClusterPlan], ClusterPlan]


def both(*changes: Change) -> Change:
    """One change after the other."""

    def change(plan: ClusterPlan) -> ClusterPlan:
        for one in changes:
            plan = one(plan)
        return plan

    return change


def mounts(*found: Mount) -> Change:
    return lambda plan: replace(plan, storage=(*plan.storage, *found))


def network(**fields: object) -> Change:
    def change(plan: ClusterPlan) -> ClusterPlan:
        site = there(plan.aws)
        return replace(plan, aws=replace(site, network=replace(site.network, **fields)))

    return change


def aws(**fields: object) -> Change:
    return lambda plan: replace(plan, aws=replace(there(plan.aws), **fields))


def head(**fields: object) -> Change:
    return lambda plan: replace(plan, head=replace(there(plan.head), **fields))


def top(**fields: object) -> Change:
    return lambda plan: replace(plan, **fields)


def pools(change: Callable[[tuple[Pool, ...]], tuple[Pool, ...]]) -> Change:
    return lambda plan: replace(plan, pools=change(plan.pools))


def exports(plan: ClusterPlan) -> ClusterPlan:
    """The head exports /apps from a disk of its own."""
    nfs = Nfs(server=there(plan.head).address, export="/apps", from_head=True)
    return both(mounts(Mount(path="/apps", nfs=nfs)), head(volumes=(STATE, APPS)))(plan)


def standby(plan: ClusterPlan) -> ClusterPlan:
    second = Standby(machine="m7i.2xlarge", zone=OTHER_ZONE, address="10.42.32.10", state="/state")
    return both(mounts(Mount(path="/state", efs=Efs())), head(standby=second))(plan)


def site_vpc(plan: ClusterPlan) -> ClusterPlan:
    subnets = (
        Subnet(zone=ZONE, cidr="", id="subnet-a", public_id="subnet-pa"),
        Subnet(zone=OTHER_ZONE, cidr="", id="subnet-b"),
    )
    return aws(network=Network(cidr="", subnets=subnets, vpc="vpc-1"))(plan)


def research(plan: ClusterPlan | None = None) -> ClusterPlan:
    """Everything that a research cluster has: login, file systems of each kind, budget, directory, bounds."""
    other = Mount(path="/archive", other=OtherMount(type="beegfs", source="192.0.2.9:/a", options=("rw",)))
    scratch = Mount(path="/scratch", nvme=Nvme())
    access = Access(ssh_from=("198.51.100.0/24", "203.0.113.7/32"), ssm=True)
    budget = Budget(
        monthly=250_000_000_000,
        warn_at=200_000_000_000,
        stop_scaling_at=250_000_000_000,
        notify=("ops@example.org",),
    )
    directory = Directory(uri="ldaps://ldap.example.org", base="dc=example", secret=BIND_SECRET)
    return both(
        mounts(HOME, DATA, scratch, other),
        exports,
        top(login=LOGIN, access=access, budget=budget, directory=directory),
        aws(tags=(("team", "research"),), boundary=BOUNDARY, jobs=JOBS),
    )(plan or a_plan())


def own_image(plan: ClusterPlan) -> ClusterPlan:
    image = Image(os="ubuntu-24.04", id="ami-0123456789abcdef0")
    return pools(lambda found: (replace(found[0], image=image), *found[1:]))(plan)

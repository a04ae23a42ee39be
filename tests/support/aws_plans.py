"""Plans of each kind of cluster on AWS: the burst plan with changes."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

from gpucluster.aws.program import declare
from gpucluster.plan.model import (
    Access,
    AwsPool,
    Budget,
    Directory,
    Efs,
    Follow,
    FsxLustre,
    ImageById,
    JobsS3Access,
    Login,
    LustreLink,
    Mount,
    NfsFromHead,
    Nvme,
    OtherMount,
    Sessions,
    SiteNetwork,
    SiteSubnet,
    SlurmOnAws,
    Standby,
    Volume,
)
from support.builders import a_plan
from support.declared import Declared, declared_by

ZONE, OTHER_ZONE = "us-east-2a", "us-east-2b"
JOBS = JobsS3Access(read=("s3://example-data/sets",), write=("s3://example-data/checkpoints",))
BOUNDARY = "arn:aws:iam::123456789012:policy/site-boundary"
BIND_SECRET = "arn:aws:secretsmanager:us-east-2:123456789012:secret:ldap-1"
LINK = LustreLink(path="/", s3="s3://example-data", imports=(Follow.NEW,), exports=(Follow.CHANGED,))
HOME = Mount(path="/home", source=Efs())
DATA = Mount(path="/data", source=FsxLustre(zone=ZONE, size_gib=4800, throughput=250, links=(LINK,)))
STATE = Volume(key="state", size_gib=100, path="/srv/gpucluster-state")
APPS = Volume(key="nfs-apps", size_gib=200, path="/apps")
LOGIN = Login(
    machine="m7i.xlarge",
    zone=ZONE,
    names=("burst-login-1",),
    sessions=Sessions(memory_mib=4096, tasks=2000, cpus=2),
)


@cache
@cache
def declared_of(plan: SlurmOnAws) -> tuple[Declared, ...]:
    """Return the resources that the program declares for the plan. A run of the program takes a third of a second."""
    return declared_by(partial(declare, plan))


Change = Callable[[SlurmOnAws], SlurmOnAws]


def both(*changes: Change) -> Change:
    """Apply several changes in order."""

    def change(plan: SlurmOnAws) -> SlurmOnAws:
        for one in changes:
            plan = one(plan)
        return plan

    return change


def mounts(*found: Mount) -> Change:
    return lambda plan: replace(plan, storage=(*plan.storage, *found))


def network(**fields: object) -> Change:
    def change(plan: SlurmOnAws) -> SlurmOnAws:
        site = plan.aws
        return replace(plan, aws=replace(site, network=replace(site.network, **fields)))

    return change


def aws(**fields: object) -> Change:
    return lambda plan: replace(plan, aws=replace(plan.aws, **fields))


def head(**fields: object) -> Change:
    return lambda plan: replace(plan, head=replace(plan.head, **fields))


def top(**fields: object) -> Change:
    return lambda plan: replace(plan, **fields)


def pools(change: Callable[[tuple[AwsPool, ...]], tuple[AwsPool, ...]]) -> Change:
    return lambda plan: replace(plan, pools=change(plan.pools))


def exports(plan: SlurmOnAws) -> SlurmOnAws:
    """Add an export of /apps from a disk of the head."""
    nfs = NfsFromHead(server=plan.head.address, export="/apps")
    return both(mounts(Mount(path="/apps", source=nfs)), head(volumes=(STATE, APPS)))(plan)


def standby(plan: SlurmOnAws) -> SlurmOnAws:
    second = Standby(machine="m7i.2xlarge", zone=OTHER_ZONE, address="10.42.32.10", state="/state")
    return both(mounts(Mount(path="/state", source=Efs())), head(standby=second))(plan)


def site_vpc(plan: SlurmOnAws) -> SlurmOnAws:
    subnets = (
        SiteSubnet(zone=ZONE, id="subnet-a", public_id="subnet-pa"),
        SiteSubnet(zone=OTHER_ZONE, id="subnet-b"),
    )
    return aws(network=SiteNetwork(vpc="vpc-1", subnets=subnets))(plan)


def research(plan: SlurmOnAws | None = None) -> SlurmOnAws:
    """Return all parts of a research cluster: login, file systems of each kind, budget, directory, permission boundary."""
    other = Mount(path="/archive", source=OtherMount(type="beegfs", source="192.0.2.9:/a", options=("rw",)))
    scratch = Mount(path="/scratch", source=Nvme())
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


def own_image(plan: SlurmOnAws) -> SlurmOnAws:
    image = ImageById(os="ubuntu-24.04", id="ami-0123456789abcdef0")
    return pools(lambda found: (replace(found[0], image=image), *found[1:]))(plan)

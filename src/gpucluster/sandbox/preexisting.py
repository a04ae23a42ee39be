"""Create the resources that a plan names: capacity reservations and blocks, the site's VPC, KMS key, buckets and boot scripts.

Without it the stand-in refuses the plan. VPC and reservations belong to another account, which shares them: the stand-in
then refuses every call that only their owner may make (T50), and shows none of the owner's tags.
"""

import hashlib
import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gpucluster.plan.model import BootScript, ClusterPlan, FsxLustre, Market, SiteNetwork, SlurmOnAws
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.sandbox.aws.moto_state import ACCOUNT

OWNER = "210987654321"  # of the site's network and reservations; the account of the sandbox is another one
SCRIPTS = "scripts"  # beside the spec: the files that the site has in S3 as boot scripts, by any name
_LARGEST = 2**20  # bytes of a boot script; a larger file is not read
_SUBNET = 20  # prefix length of a subnet of the site: 4,091 addresses


class SiteCommands(Protocol):
    """The used part of `SandboxControl`."""

    def reserve(
        self,
        machine: str,
        zone: str,
        count: int,
        *,
        id: str,  # noqa: A002 - the order's word
        owner: str,
        block: bool,
    ) -> object: ...

    def make_vpc(
        self, vpc: str, cidr: str, subnets: Sequence[Mapping[str, str]], *, owner: str
    ) -> object: ...

    def make_key(self, name: str) -> object: ...


class Buckets(Protocol):
    """The used part of an S3 client."""

    def create_bucket(self, *, Bucket: str) -> object: ...  # noqa: N803 - S3's word

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> object: ...  # noqa: N803 - S3's words


class Roles(Protocol):
    """The used part of an IAM client."""

    def create_role(self, *, RoleName: str, Path: str, AssumeRolePolicyDocument: str) -> object: ...  # noqa: N803 - IAM's words


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteVpc:
    """The site's VPC and its subnets: id, zone and range of each."""

    id: str
    cidr: str
    subnets: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedCapacity:
    """A reservation or a block with capacity for everything that the plan may launch into it."""

    id: str
    machine: str
    zone: str
    count: int
    block: bool


def reservations(plan: ClusterPlan) -> tuple[ReservedCapacity, ...]:
    """The reservations and blocks of the plan, sorted by id; pools that share one have capacity for both."""
    found: dict[str, ReservedCapacity] = {}
    for one in _named(plan):
        known = found.get(one.id)
        found[one.id] = one if known is None else replace(known, count=known.count + one.count)
    return tuple(found[i] for i in sorted(found))


def site_vpc(plan: ClusterPlan) -> SiteVpc | None:
    """The VPC that the plan names by id, with ranges that hold the fixed addresses; None if the plan has its own VPC."""
    if not isinstance(plan, SlurmOnAws) or not isinstance(plan.aws.network, SiteNetwork):
        return None
    network = plan.aws.network
    whole = ipaddress.ip_network(f"{plan.head.address}/16", strict=False)
    heads = [plan.head, *([] if plan.head.standby is None else [plan.head.standby])]
    fixed = {one.zone: ipaddress.ip_network(f"{one.address}/{_SUBNET}", strict=False) for one in heads}
    free = iter([one for one in whole.subnets(new_prefix=_SUBNET) if one not in fixed.values()])
    subnets: list[Mapping[str, str]] = []
    for one in network.subnets:
        span = fixed[one.zone] if one.zone in fixed else next(free)
        subnets.append({"id": one.id, "zone": one.zone, "cidr": str(span)})
        if one.public_id is not None:
            subnets.append({"id": one.public_id, "zone": one.zone, "cidr": str(next(free))})
    return SiteVpc(id=network.vpc, cidr=str(whole), subnets=tuple(subnets))


def make(plan: ClusterPlan, control: SiteCommands) -> None:
    """Create VPC, KMS key, reservations and blocks in the sandbox's cloud."""
    vpc = site_vpc(plan)
    if vpc is not None:
        control.make_vpc(vpc.id, vpc.cidr, vpc.subnets, owner=OWNER)
    key = _key(plan)
    if key is not None:
        control.make_key(key)
    for one in reservations(plan):
        control.reserve(one.machine, one.zone, one.count, id=one.id, owner=OWNER, block=one.block)


def buckets(plan: ClusterPlan) -> tuple[str, ...]:
    """The site's buckets: of boot scripts, and of links of a Lustre; FSx refuses a link to a missing bucket (T45)."""
    links = (
        link for mount in plan.storage if isinstance(mount.source, FsxLustre) for link in mount.source.links
    )
    linked = {link.s3.removeprefix("s3://").partition("/")[0] for link in links}
    return tuple(sorted(linked | {script.bucket for script in _boot_scripts(plan)}))


def boot_scripts(plan: ClusterPlan, folder: Path) -> Mapping[BootScript, Path | None]:
    """The plan's boot scripts, each with the file of the folder that has its SHA-256; None if there is no such file."""
    wanted = _boot_scripts(plan)
    files = sorted(folder.iterdir()) if wanted and folder.is_dir() else []
    found = {
        hashlib.sha256(file.read_bytes()).hexdigest(): file
        for file in files
        if file.is_file() and file.stat().st_size <= _LARGEST
    }
    return {script: found.get(script.sha256) for script in wanted}


def make_buckets(plan: ClusterPlan, client: Buckets, folder: Path) -> None:
    """Create the buckets, with the boot scripts whose files are in the folder."""
    for name in buckets(plan):
        client.create_bucket(Bucket=name)
    for script, file in boot_scripts(plan, folder).items():
        if file is not None:
            client.put_object(Bucket=script.bucket, Key=script.key, Body=file.read_bytes())


def people(plan: ClusterPlan) -> tuple[str, ...]:
    """The roles that the plan admits to its EKS cluster, by ARN."""
    part = plan.kubernetes
    plane = None if part is None else part.control_plane
    entries = plane.entries if isinstance(plane, EksControlPlane) else ()
    return tuple(sorted(one.principal for one in entries if ":role/" in one.principal))


def make_people(plan: ClusterPlan, client: Roles) -> None:
    """Create the roles, for anybody of the account."""
    statement = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}  # fmt: skip
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    for arn in people(plan):
        path, _, name = arn.partition(":role")[2].rpartition("/")
        client.create_role(RoleName=name, Path=f"{path}/", AssumeRolePolicyDocument=trust)


def explain(plan: ClusterPlan, folder: Path) -> tuple[str, ...]:
    """One sentence for each, for people who rehearse."""
    return tuple(_sentences(plan, folder))


def _sentences(plan: ClusterPlan, folder: Path) -> Iterator[str]:
    vpc, key = site_vpc(plan), _key(plan)
    if vpc is not None:
        spans = ", ".join(f"{one['id']} {one['cidr']}" for one in vpc.subnets)
        yield f"VPC {vpc.id} {vpc.cidr} with {spans}: made here, and shared by the account {OWNER}"
    if key is not None:
        yield f"KMS key {key}: made here, enabled, with the policy of a new key"
    yield from (f"bucket {name}: made here" for name in buckets(plan))
    yield from (f"role {arn}: made here, for anybody of the account" for arn in people(plan))
    for script, file in boot_scripts(plan, folder).items():
        if file is None:
            pools = ", ".join(pool.name for pool in plan.pools if script in pool.on_boot)
            yield (
                f"{script.url} is missing: no file of {folder} has its SHA-256 {script.sha256}. "
                f"Nodes of {pools} cannot boot; put the script there before the next `sandbox up`"
            )
        else:
            yield f"{script.url}: a copy of {file}"
    for one in reservations(plan):
        kind, state = ("block", "without an end") if one.block else ("reservation", "empty and active")
        yield (
            f"capacity {kind} {one.id} ({one.count} x {one.machine} in {one.zone}): made here as the plan names it, "
            f"{state}, and shared by the account {OWNER}"
        )


def _boot_scripts(plan: ClusterPlan) -> tuple[BootScript, ...]:
    return tuple(dict.fromkeys(script for pool in plan.pools for script in pool.on_boot))


def _key(plan: ClusterPlan) -> str | None:
    return None if plan.aws is None else plan.aws.kms_key


def _named(plan: ClusterPlan) -> Iterator[ReservedCapacity]:
    for pool in plan.pools:
        for source in pool.sources:
            if source.reservation is not None:
                yield ReservedCapacity(
                    id=source.reservation,
                    machine=source.machines[0],
                    zone=source.zones[0],
                    count=pool.max if source.max is None else source.max,
                    block=source.market is Market.CAPACITY_BLOCK,
                )

"""Account checks: findings from facts and requirements, and the queries against the sandbox's AWS."""

import datetime
import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from support.builders import a_kube_plan, a_plan
from support.clouds import RunningCloud, running_cloud
from support.eks_plans import BLOCK, PREPAID, RESERVATION

from gpucluster import catalog
from gpucluster.catalog.quotas import quota_of, quotas
from gpucluster.doctor import requirements
from gpucluster.doctor.facts import (
    AccountFinding,
    AccountStatus,
    AddressFact,
    DefaultKeyFact,
    Facts,
    ImageFact,
    KeyFact,
    LockFact,
    QuotaFact,
    ReservationFact,
    SubnetFact,
    Unknown,
)
from gpucluster.doctor.findings import exit_code, report
from gpucluster.doctor.pulumi_lock import state_lock
from gpucluster.doctor.queries import query, query_account
from gpucluster.plan.model import AwsPlan, OwnNetwork, SiteNetwork, SiteSubnet

NOW = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
IMAGE = "gpucluster-ubuntu-24.04-slurm-24.11"
AN_IMAGE = ImageFact(id="ami-1", name=IMAGE, state="available", created="2026-11-01T00:00:00.000Z")

AWS_KEY = KeyFact(id="alias/aws/ebs", state="Enabled", manager="AWS")
OWN_KEY = KeyFact(id="alias/site", state="Enabled", manager="CUSTOMER")


def good_facts(plan: AwsPlan) -> Facts:
    """An account that meets all requirements."""
    places = requirements.placements(plan)
    return Facts(
        identity="arn:aws:iam::123456789012:user/operator",
        zones={place.zone: "available" for place in places},
        quotas={q.code: QuotaFact(name=q.name, value=1e6) for q in quotas()},
        offered=frozenset((p.machine, p.zone) for p in places),
        images={IMAGE: (AN_IMAGE,)},
        addresses=dict.fromkeys(requirements.fixed_addresses(plan), AddressFact()),
        roles=dict.fromkeys(requirements.roles(plan), True),
        default_key=DefaultKeyFact(always=False, key=AWS_KEY),
        lock=LockFact(backend="s3://states"),
    )


def lines(facts: Facts, plan: AwsPlan | None = None) -> tuple[AccountFinding, ...]:
    return report(plan or a_plan(), catalog.load(), facts, NOW)


def worst(facts: Facts, plan: AwsPlan | None = None) -> list[AccountFinding]:
    return [line for line in lines(facts, plan) if line.verdict is not AccountStatus.OK]


def test_account_that_meets_all_requirements_has_no_problem() -> None:
    found = lines(good_facts(a_plan()))
    assert not [line for line in found if line.verdict is not AccountStatus.OK]
    assert exit_code(found) == 0


@pytest.mark.parametrize("always", [True, False])
def test_customer_managed_default_key_fails_without_the_field(always: bool) -> None:
    """Templates ask for encryption, so the default key counts also where encryption by default is off (T51)."""
    facts = replace(good_facts(a_plan()), default_key=DefaultKeyFact(always=always, key=OWN_KEY))
    (found,) = worst(facts)
    assert (found.verdict, found.where) == (AccountStatus.FAIL, "aws.kms_key")
    assert "alias/site, managed by CUSTOMER" in found.found
    assert "write `kms_key: alias/site` under `aws`" in found.next_step
    assert worst(replace(facts, key=OWN_KEY)) == []


@pytest.mark.parametrize(
    ("key", "verdict", "found"),
    [
        (replace(OWN_KEY, state="Disabled"), AccountStatus.FAIL, "Disabled, managed by CUSTOMER"),
        (replace(OWN_KEY, state="", manager=""), AccountStatus.FAIL, "no such key in the region of the spec"),
        (AWS_KEY, AccountStatus.FAIL, "Enabled, managed by AWS"),
        (Unknown("no permission for kms:DescribeKey", denied=True), AccountStatus.UNKNOWN, "no permission"),
    ],
)
def test_key_of_the_spec(key: KeyFact | Unknown, verdict: AccountStatus, found: str) -> None:
    (line,) = worst(replace(good_facts(a_plan()), key=key))
    assert (line.verdict, line.where) == (verdict, "aws.kms_key")
    assert found in line.found


HEAD = a_plan().head.address
TAKEN = AddressFact(subnet="subnet-1", holder="eni-1 (EFS mount target for fs-1)")
FREE = AddressFact(subnet="subnet-1")


def site_plan() -> AwsPlan:
    plan = a_plan()
    subnet = SiteSubnet(zone=plan.head.zone, id="subnet-1")
    return replace(plan, aws=replace(plan.aws, network=SiteNetwork(vpc="vpc-1", subnets=(subnet,))))


ADDRESSES: list[tuple[str, AddressFact | Unknown, AccountStatus, str, str]] = [
    ("a subnet that does not exist yet", AddressFact(), AccountStatus.OK, "does not exist yet", ""),
    ("free and reserved", replace(FREE, reserved=True), AccountStatus.OK, "free, reserved in subnet-1", ""),
    ("the head that runs", replace(TAKEN, ours=True, reserved=True), AccountStatus.OK, "used by this cluster: eni-1", ""),
    ("another owner", replace(TAKEN, reserved=True), AccountStatus.FAIL, "eni-1 (EFS mount target for fs-1) in subnet-1 uses it", "delete that interface"),
    ("free but not reserved", FREE, AccountStatus.WARNING, "free, not reserved", "pulumi up --stack burst"),
    ("a denied query", Unknown("no permission for ec2:GetSubnetCidrReservations", denied=True), AccountStatus.UNKNOWN, "ec2:GetSubnetCidrReservations", "ask the administrator"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "fact", "verdict", "found", "step"), ADDRESSES, ids=[r[0] for r in ADDRESSES]
)
def test_fixed_address(
    what: str, fact: AddressFact | Unknown, verdict: AccountStatus, found: str, step: str
) -> None:
    facts = replace(good_facts(a_plan()), addresses={HEAD: fact})
    (line,) = [one for one in lines(facts) if one.what == f"address {HEAD}"]
    assert (line.verdict, line.where) == (verdict, "" if verdict is AccountStatus.OK else "head.address"), (
        what
    )
    assert found in line.found
    assert step in line.next_step


def test_owner_of_a_site_vpc_makes_the_reservation() -> None:
    facts = replace(good_facts(a_plan()), addresses={HEAD: FREE}, subnets={"subnet-1": SubnetFact(zone="us-east-2a", vpc="vpc-1", free=4000)})  # fmt: skip
    (line,) = [one for one in lines(facts, site_plan()) if one.what == f"address {HEAD}"]
    command = f"aws ec2 create-subnet-cidr-reservation --subnet-id subnet-1 --cidr {HEAD}/32 --reservation-type explicit"
    assert line.next_step == f"the owner of the VPC: {command}"


P, SPOT_P5 = "L-417A185B", "L-C4BD4855"

ROWS: list[tuple[str, dict[str, Any], AccountStatus, str, str]] = [
    ("a quota of 0", {"quotas": {P: QuotaFact(name="P", value=0)}}, AccountStatus.FAIL, "quota L-417A185B", "768 vCPUs at most"),
    ("a quota that is denied", {"quotas": {SPOT_P5: Unknown("no permission for x", denied=True)}},
     AccountStatus.UNKNOWN, "quota L-C4BD4855", "3072 vCPUs"),
    ("a zone that the account does not have", {"zones": {"us-east-2a": "available"}}, AccountStatus.FAIL, "zone us-east-2b", "available"),
    ("a region that is denied", {"zones": Unknown("no permission for y", denied=True)}, AccountStatus.UNKNOWN, "region us-east-2", ""),
    ("a machine that is offered nowhere", {"offered": frozenset({("m7i.2xlarge", "us-east-2a")})}, AccountStatus.FAIL, "offered: p5en", "each zone"),
    ("no image", {"images": {IMAGE: ()}}, AccountStatus.FAIL, f"image {IMAGE}", "available"),
    ("an image that is not ready", {"images": {IMAGE: (replace(AN_IMAGE, state="pending"),)}}, AccountStatus.FAIL, f"image {IMAGE}", "available"),
    ("an image that is deprecated soon", {"images": {IMAGE: (replace(AN_IMAGE, deprecated="2026-12-01T00:00:00.000Z"),)}},
     AccountStatus.WARNING, f"image {IMAGE}", "not deprecated"),
    ("an unreadable deprecation date", {"images": {IMAGE: (replace(AN_IMAGE, deprecated="soon"),)}},
     AccountStatus.WARNING, f"image {IMAGE}", "not deprecated"),
    ("no role for spot", {"roles": {requirements.SPOT_ROLE: False}}, AccountStatus.FAIL, f"service-linked role {requirements.SPOT_ROLE}", "exists"),
    ("a lock that is held", {"lock": LockFact(backend="s3://states", holders=("process 7 of 'ann' on 'desk'",))},
     AccountStatus.FAIL, "Pulumi's state in s3://states", "not locked"),
    ("no backend", {"lock": Unknown("no backend is set")}, AccountStatus.UNKNOWN, "Pulumi's state", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "change", "verdict", "line", "expected"), ROWS, ids=[row[0] for row in ROWS]
)
def test_unmet_requirement_is_one_finding_with_the_expected_value(
    what: str, change: dict[str, Any], verdict: AccountStatus, line: str, expected: str
) -> None:
    good = good_facts(a_plan())
    merged = {
        key: {**getattr(good, key), **value} if key in ("quotas", "images", "roles") else value
        for key, value in change.items()
    }
    found = worst(replace(good, **merged))
    assert found, what
    assert all(one.verdict is verdict and one.what.startswith(line) for one in found)
    assert expected in found[0].expected
    assert exit_code(lines(replace(good, **merged))) == (1 if verdict is AccountStatus.FAIL else 0)


def test_failed_finding_names_pool_and_field() -> None:
    good = good_facts(a_plan())
    short = replace(good, quotas={**good.quotas, P: QuotaFact(name="P", value=191)})
    (line,) = worst(short)
    assert line.where == "pools[h200].capacity[1]"
    assert "--desired-value 768" in line.next_step


def test_idle_reservation_counts_against_quota_and_capacity_block_does_not() -> None:
    good, plan = good_facts(a_plan()), a_plan()
    held = ReservationFact(
        id="cr-1", state="active", machine="p5en.48xlarge", zone="us-east-2a", total=1, block=False
    )
    tight = replace(good, quotas={**good.quotas, P: QuotaFact(name="P", value=768)})
    assert not worst(tight, plan)
    (line,) = worst(replace(tight, reservations=(held,)), plan)
    assert "1 x p5en.48xlarge (reservation cr-1)" in line.expected
    assert not worst(replace(tight, reservations=(replace(held, block=True),)), plan)


A_BLOCK = ReservationFact(
    id=BLOCK, state="active", machine="p5.48xlarge", zone="us-west-2a", total=4, block=True
)
RESERVED = ReservationFact(
    id=RESERVATION, state="active", machine="p4de.24xlarge", zone="us-west-2a", total=6, block=False
)
_NOT_YET = "it is scheduled, and EKS launches always-on nodes at once"


@pytest.mark.parametrize(("named", "identity", "warned"), [
    ("role/team/admin", "assumed-role/admin/ann", True),
    ("role/admin", "role/admin", True),
    ("user/ann", "user/ann", True),
    ("role/admin", "assumed-role/other/admin", False),
    ("role/ann", "user/ann", False),
    ("role/admin", "root", False),
])  # fmt: skip
def test_caller_whom_the_spec_gives_an_entry(named: str, identity: str, warned: bool) -> None:
    """EKS makes an entry for whoever creates a cluster, and refuses a second one."""
    admins = (
        "  control_plane: eks\n",
        f"  control_plane: eks\n  admins: ['arn:aws:iam::123456789012:{named}']\n",
    )
    plan = a_kube_plan(admins)
    service = "sts" if identity.startswith("assumed") else "iam"
    facts = replace(good_facts(plan), identity=f"arn:aws:{service}::123456789012:{identity}")
    found = [line for line in worst(facts, plan) if line.where == "kubernetes.admins"]
    assert [line.verdict for line in found] == [AccountStatus.WARNING] * warned


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (A_BLOCK, "active, 4 x p5.48xlarge in us-west-2a"),
        (replace(A_BLOCK, id="cr-1"), "no reservation with that id in this account and region"),
        (replace(A_BLOCK, zone="us-west-2b"), "it is in us-west-2b"),
        (replace(A_BLOCK, state="scheduled"), _NOT_YET),
    ],
    ids=["active", "another id", "another zone", "not begun"],
)
def test_reservations_of_kubernetes_pools(block: ReservationFact, found: str) -> None:
    """Nobody looked for them, and a node group of a block that has not begun fails for good."""
    plan = a_kube_plan(*PREPAID)
    told = {
        line.what: line for line in lines(replace(good_facts(plan), reservations=(block, RESERVED)), plan)
    }
    line = told[f"reservation {BLOCK}"]
    assert line.found == found
    assert (line.verdict is AccountStatus.OK) is (block == A_BLOCK)
    assert ("after its start" in line.next_step) is (found == _NOT_YET)
    assert told[f"reservation {RESERVATION}"].verdict is AccountStatus.OK


def test_reservation_of_karpenter_may_begin_later() -> None:
    plan = a_kube_plan(*PREPAID, ("{min: 1, max: 6}", "{min: 0, max: 6}"))
    later = (A_BLOCK, replace(RESERVED, state="scheduled"))
    (line,) = [
        one
        for one in lines(replace(good_facts(plan), reservations=later), plan)
        if one.what == f"reservation {RESERVATION}"
    ]
    assert (line.verdict, line.expected.partition(",")[0]) == (AccountStatus.OK, "active or scheduled")


def test_machine_without_known_quota_is_unknown() -> None:
    assert quota_of("p6-b200.48xlarge", "spot") is None
    assert quota_of("p6-b200.48xlarge", "on-demand") is not None
    plan = a_plan(
        ("  - name: h200\n", "  - name: h200\n    image: {ami: ami-0123456789abcdef0}\n"),
        (
            "{from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}",
            "{from: spot, machines: [p6-b200.48xlarge]}",
        ),
        (
            "{from: on-demand, machines: [p5en.48xlarge], max: 4}",
            "{from: on-demand, machines: [p6-b200.48xlarge]}",
        ),
    )
    found = worst(good_facts(plan), plan)
    quotas = [one for one in found if one.where != "pools[h200].image"]  # the facts have no image of this id
    assert [(one.verdict, one.where) for one in quotas] == [
        (AccountStatus.UNKNOWN, "pools[h200].capacity[0]")
    ]


def test_existing_subnet_is_checked_for_zone_and_free_addresses() -> None:
    plan = a_plan()
    network = plan.aws.network
    subnets = tuple(SiteSubnet(zone=s.zone, id=f"subnet-{s.zone[-1]}") for s in network.subnets)
    theirs = replace(plan, aws=replace(plan.aws, network=SiteNetwork(vpc="vpc-1", subnets=subnets)))
    facts = replace(
        good_facts(plan),
        subnets={
            "subnet-a": SubnetFact(zone="us-east-2a", vpc="vpc-1", free=9),
            "subnet-b": SubnetFact(zone="us-east-2c", vpc="vpc-1", free=4000),
        },
    )
    assert [(one.where, one.found) for one in worst(facts, theirs)] == [
        ("aws.network.subnets[us-east-2a]", "9 free addresses"),
        ("aws.network.subnets[us-east-2b]", "it is in us-east-2c"),
    ]
    strange = SubnetFact(zone="us-east-2a", vpc="vpc-2", free=4000)
    assert (
        worst(replace(facts, subnets={"subnet-a": strange}), theirs)[0].found
        == "it is in vpc-2, not in vpc-1"
    )
    gone = worst(replace(facts, subnets={}), theirs)
    assert {one.found for one in gone} == {"the subnet does not exist"}


@pytest.mark.parametrize(("owner", "refused"), [("123456789012", False), ("210987654321", True)])
def test_endpoints_in_a_shared_vpc_fail(owner: str, refused: bool) -> None:
    plan = a_plan()
    subnets = tuple(SiteSubnet(zone=s.zone, id=f"subnet-{s.zone[-1]}") for s in plan.aws.network.subnets)
    network = SiteNetwork(vpc="vpc-1", subnets=subnets, endpoints=("ec2", "sqs"))
    theirs = replace(plan, aws=replace(plan.aws, network=network))
    found = {
        f"subnet-{s.zone[-1]}": SubnetFact(zone=s.zone, vpc="vpc-1", free=4000, owner=owner)
        for s in plan.aws.network.subnets
    }
    facts = replace(good_facts(plan), subnets=found, identity="arn:aws:iam::123456789012:user/operator")
    bad = worst(facts, theirs)
    assert [one.where for one in bad] == (["aws.network.endpoints"] if refused else [])
    if refused:
        assert bad[0].found == "the subnets belong to the account 210987654321"
        assert bad[0].next_step == "remove the field, and ask the owner for endpoints of ec2, sqs"


def test_without_credentials_one_finding_fails_and_the_rest_is_unknown() -> None:
    def no_credentials(_service: str) -> Any:
        raise NoCredentialsError

    plan = a_plan()
    facts = query_account(plan, catalog.load(), no_credentials, Unknown("no backend is set"))
    found = lines(facts)
    assert [line.verdict for line in found] == [
        AccountStatus.FAIL,
        AccountStatus.UNKNOWN,
        AccountStatus.UNKNOWN,
    ]
    assert exit_code(found) == 2


def test_denied_query_names_the_action_and_a_hostile_message_becomes_printable() -> None:
    def denied() -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetServiceQuota")

    def hostile() -> None:
        raise ClientError({"Error": {"Code": "Weird", "Message": "a\x1b[31m\nb" + "x" * 999}}, "Describe")

    assert query("servicequotas:GetServiceQuota", denied) == Unknown(
        "no permission for servicequotas:GetServiceQuota", denied=True
    )
    answer = query("ec2:Describe", hostile)
    assert isinstance(answer, Unknown)
    assert answer.reason.isprintable()
    assert len(answer.reason) < 400


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud]:
    with running_cloud() as running:
        yield running


@pytest.mark.loopback
def test_queries_only_read(cloud: RunningCloud) -> None:
    plan = a_plan(("us-east-2\n", "us-east-1\n"), ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"))
    trail = cloud.model.trail
    trail.clear()
    facts = query_account(plan, catalog.load(), cloud.client, Unknown("not queried"))
    assert isinstance(facts.identity, str)
    assert not isinstance(facts.zones, Unknown)
    images = facts.images[IMAGE]
    assert not isinstance(images, Unknown)
    assert [image.state for image in images] == ["available"]
    assert facts.roles == {requirements.SPOT_ROLE: False}
    assert {entry.action.startswith(("Describe", "Get", "List")) for entry in trail} == {True}
    found = report(plan, catalog.load(), facts, NOW)
    verdicts = {line.what: line.verdict for line in found}
    assert verdicts["zone us-east-1a"] is AccountStatus.OK
    assert verdicts[f"image {IMAGE}"] is AccountStatus.OK
    assert {line.what for line in found if line.verdict is AccountStatus.FAIL} == {
        f"service-linked role {requirements.SPOT_ROLE}"
    }
    rehearsed = query_account(plan, catalog.load(), cloud.client, Unknown("not queried"), stand_in=True)
    assert exit_code(report(plan, catalog.load(), rehearsed, NOW)) == 0


@pytest.mark.loopback
def test_fixed_address_in_the_account(cloud: RunningCloud) -> None:
    """A file system took the address before the head; then it is gone; then the address is reserved."""
    plan = a_plan(("us-east-2\n", "us-east-1\n"), ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"))
    network, head, ec2 = plan.aws.network, plan.head, cloud.fresh().client("ec2")
    assert isinstance(network, OwnNetwork)

    def fact() -> AddressFact | Unknown:
        return query_account(plan, catalog.load(), cloud.client, Unknown("-")).addresses[head.address]

    assert fact() == AddressFact(), "nothing is there before the first `pulumi up`"
    span = next(one for one in network.subnets if one.zone == head.zone)
    tags = [{"ResourceType": "subnet", "Tags": [{"Key": "gpucluster:cluster", "Value": "burst"}]}]
    vpc = ec2.create_vpc(CidrBlock=network.cidr)["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=span.cidr, AvailabilityZone=head.zone, TagSpecifications=tags)["Subnet"]["SubnetId"]  # fmt: skip
    made = ec2.create_network_interface(SubnetId=subnet, PrivateIpAddress=head.address, Description="a stray")
    interface = made["NetworkInterface"]["NetworkInterfaceId"]
    assert fact() == AddressFact(subnet=subnet, holder=f"{interface} (a stray)")
    ec2.delete_network_interface(NetworkInterfaceId=interface)
    assert fact() == AddressFact(subnet=subnet)
    ec2.create_subnet_cidr_reservation(SubnetId=subnet, Cidr=f"{head.address}/32", ReservationType="explicit")
    assert fact() == AddressFact(subnet=subnet, reserved=True)
    image = cloud.api.moto.image_named(IMAGE)
    own = [{"ResourceType": "instance", "Tags": [{"Key": "gpucluster:cluster", "Value": "burst"}]}]
    run = ec2.run_instances(ImageId=image, InstanceType="m7i.large", MinCount=1, MaxCount=1, SubnetId=subnet, PrivateIpAddress=head.address, TagSpecifications=own)  # fmt: skip
    found = fact()
    assert isinstance(found, AddressFact)
    assert (found.ours, found.reserved, bool(found.holder)) == (True, True, True)
    ec2.delete_tags(Resources=[run["Instances"][0]["InstanceId"]], Tags=[{"Key": "gpucluster:cluster"}])
    stray = fact()
    assert isinstance(stray, AddressFact)
    assert not stray.ours
    cloud.fresh()


@pytest.mark.loopback
@pytest.mark.parametrize(
    "code", ["UnauthorizedOperation", "RequestLimitExceeded", "InternalError", "OptInRequired"]
)
def test_account_without_any_answer_exits_2(cloud: RunningCloud, code: str) -> None:
    queried = ("GetServiceQuota", "DescribeImages", "DescribeAvailabilityZones", "GetRole",
                   "DescribeInstanceTypeOfferings", "DescribeSubnets", "GetEbsEncryptionByDefault", "DescribeCapacityReservations")  # fmt: skip
    cloud.fresh()
    for action in queried:
        cloud.model.faults.next_error(action, code, 30)
    facts = query_account(a_plan(), catalog.load(), cloud.client, Unknown("not queried"))
    found = lines(facts)
    assert {line.verdict for line in found if line.what != "credentials"} == {AccountStatus.UNKNOWN}
    assert all(code in line.found or "no permission for" in line.found for line in found[1:-1])
    assert exit_code(found) == 2
    cloud.fresh()


def test_lock_of_a_file_backend_names_its_holder(tmp_path: Path) -> None:
    held = tmp_path / ".pulumi/locks/organization/gpucluster/burst"
    held.mkdir(parents=True)
    environment = {"PULUMI_BACKEND_URL": tmp_path.as_uri()}
    assert state_lock("burst", tmp_path, environment, _none) == LockFact(backend=tmp_path.as_uri())
    (held / "a.json").write_text(json.dumps({"pid": 7, "username": "ann", "hostname": "desk\x1b"}))
    (held / "b.json").write_text("{torn")
    found = state_lock("burst", tmp_path, environment, _none)
    assert isinstance(found, LockFact)
    assert found.holders == (r"process 7 of 'ann' on 'desk\x1b'", "an unreadable lock 'b.json'")
    assert state_lock("other", tmp_path, environment, _none) == LockFact(backend=tmp_path.as_uri())


@pytest.mark.parametrize(
    ("project", "url", "words"),
    [
        ("name: x\n", "", "no backend is set"),
        ("name: x\nbackend: {url: 'https://api.example.org'}\n", "", "the backend is a service (https)"),
        (": not: yaml: [\n", "", "no backend is set"),
        ("name: x\n", "file:///nonexistent/place", "is not a folder on this machine"),
    ],
)
def test_unreadable_backend_is_unknown(tmp_path: Path, project: str, url: str, words: str) -> None:
    (tmp_path / "Pulumi.yaml").write_text(project)
    found = state_lock("burst", tmp_path, {"PULUMI_BACKEND_URL": url} if url else {}, _none)
    assert isinstance(found, Unknown)
    assert words in found.reason


def _none(_service: str) -> Any:
    raise AssertionError("the cloud is not queried")

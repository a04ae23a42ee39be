"""What stands between a spec and its cluster: facts against needs, and the questions against the stand-in cloud."""

import datetime
import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from builders import a_plan
from clouds import RunningCloud, running_cloud

from gpucluster import catalog
from gpucluster.catalog.quotas import quota_of, quotas
from gpucluster.doctor import needs
from gpucluster.doctor.account import asked, gather
from gpucluster.doctor.judge import exit_code, report
from gpucluster.doctor.model import (
    Facts,
    ImageFact,
    Line,
    LockFact,
    QuotaFact,
    ReservedFact,
    SubnetFact,
    Unknown,
    Verdict,
)
from gpucluster.doctor.state import state_lock
from gpucluster.plan.model import ClusterPlan, Subnet, there

NOW = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
IMAGE = "gpucluster-ubuntu-24.04-slurm-24.11"
AN_IMAGE = ImageFact(id="ami-1", name=IMAGE, state="available", created="2026-11-01T00:00:00.000Z")


def good_facts(plan: ClusterPlan) -> Facts:
    """An account that lacks nothing."""
    places = needs.places(plan)
    return Facts(
        identity="arn:aws:iam::123456789012:user/operator",
        zones={place.zone: "available" for place in places},
        quotas={q.code: QuotaFact(name=q.name, value=1e6) for q in quotas()},
        offered=frozenset((p.machine, p.zone) for p in places),
        images={IMAGE: (AN_IMAGE,)},
        roles=dict.fromkeys(needs.roles(plan), True),
        lock=LockFact(backend="s3://states"),
    )


def lines(facts: Facts, plan: ClusterPlan | None = None) -> tuple[Line, ...]:
    return report(plan or a_plan(), catalog.load(), facts, NOW)


def worst(facts: Facts, plan: ClusterPlan | None = None) -> list[Line]:
    return [line for line in lines(facts, plan) if line.verdict is not Verdict.OK]


def test_an_account_that_lacks_nothing_has_only_good_lines() -> None:
    found = lines(good_facts(a_plan()))
    assert not [line for line in found if line.verdict is not Verdict.OK]
    assert exit_code(found) == 0


P, SPOT_P5 = "L-417A185B", "L-C4BD4855"

ROWS: list[tuple[str, dict[str, Any], Verdict, str, str]] = [
    ("a quota of 0", {"quotas": {P: QuotaFact(name="P", value=0)}}, Verdict.FAIL, "quota L-417A185B", "768 vCPUs at most"),
    ("a quota that may not be asked", {"quotas": {SPOT_P5: Unknown("no permission for x", denied=True)}},
     Verdict.UNKNOWN, "quota L-C4BD4855", "3072 vCPUs"),
    ("a zone that the account has not", {"zones": {"us-east-2a": "available"}}, Verdict.FAIL, "zone us-east-2b", "available"),
    ("a region that may not be asked", {"zones": Unknown("no permission for y", denied=True)}, Verdict.UNKNOWN, "region us-east-2", ""),
    ("a machine that is offered nowhere", {"offered": frozenset({("m7i.2xlarge", "us-east-2a")})}, Verdict.FAIL, "offered: p5en", "each zone"),
    ("no image", {"images": {IMAGE: ()}}, Verdict.FAIL, f"image {IMAGE}", "available"),
    ("an image that is not ready", {"images": {IMAGE: (replace(AN_IMAGE, state="pending"),)}}, Verdict.FAIL, f"image {IMAGE}", "available"),
    ("an image that is deprecated soon", {"images": {IMAGE: (replace(AN_IMAGE, deprecated="2026-12-01T00:00:00.000Z"),)}},
     Verdict.WARNING, f"image {IMAGE}", "not deprecated"),
    ("a deprecation date that is none", {"images": {IMAGE: (replace(AN_IMAGE, deprecated="soon"),)}},
     Verdict.WARNING, f"image {IMAGE}", "not deprecated"),
    ("no role for spot", {"roles": {needs.SPOT_ROLE: False}}, Verdict.FAIL, f"service-linked role {needs.SPOT_ROLE}", "there"),
    ("a lock that is held", {"lock": LockFact(backend="s3://states", holders=("process 7 of 'ann' on 'desk'",))},
     Verdict.FAIL, "Pulumi's state in s3://states", "not locked"),
    ("no backend", {"lock": Unknown("no backend is named")}, Verdict.UNKNOWN, "Pulumi's state", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "change", "verdict", "line", "expected"), ROWS, ids=[row[0] for row in ROWS]
)
def test_what_lacks_is_one_line_with_what_was_expected(
    what: str, change: dict[str, Any], verdict: Verdict, line: str, expected: str
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
    assert exit_code(lines(replace(good, **merged))) == (1 if verdict is Verdict.FAIL else 0)


def test_a_failing_line_names_the_pool_and_the_field() -> None:
    good = good_facts(a_plan())
    short = replace(good, quotas={**good.quotas, P: QuotaFact(name="P", value=191)})
    (line,) = worst(short)
    assert line.where == "pools[h200].capacity[1]"
    assert "--desired-value 768" in line.next_step


def test_an_idle_reservation_counts_against_the_quota_and_a_block_does_not() -> None:
    good, plan = good_facts(a_plan()), a_plan()
    held = ReservedFact(
        id="cr-1", state="active", machine="p5en.48xlarge", zone="us-east-2a", total=1, block=False
    )
    tight = replace(good, quotas={**good.quotas, P: QuotaFact(name="P", value=768)})
    assert not worst(tight, plan)
    (line,) = worst(replace(tight, reservations=(held,)), plan)
    assert "1 x p5en.48xlarge (reservation cr-1)" in line.expected
    assert not worst(replace(tight, reservations=(replace(held, block=True),)), plan)


def test_a_machine_whose_quota_we_do_not_know_is_unknown_and_never_good() -> None:
    assert quota_of("p6-b200.48xlarge", "spot") is None
    assert quota_of("p6-b200.48xlarge", "on-demand") is not None
    plan = a_plan(
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
    assert [(one.verdict, one.where) for one in found] == [(Verdict.UNKNOWN, "pools[h200].capacity[0]")]


def test_a_subnet_of_the_sites_is_checked_for_zone_and_free_addresses() -> None:
    plan = a_plan()
    network = there(plan.aws).network
    subnets = tuple(Subnet(zone=s.zone, cidr="", id=f"subnet-{s.zone[-1]}") for s in network.subnets)
    theirs = replace(
        plan, aws=replace(there(plan.aws), network=replace(network, vpc="vpc-1", subnets=subnets))
    )
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
    assert {one.found for one in gone} == {"there is no such subnet"}


def test_without_credentials_one_line_fails_and_nothing_else_is_guessed() -> None:
    def nobody(_service: str) -> Any:
        raise NoCredentialsError

    plan = a_plan()
    facts = gather(plan, catalog.load(), nobody, Unknown("no backend is named"))
    found = lines(facts)
    assert [line.verdict for line in found] == [Verdict.FAIL, Verdict.UNKNOWN, Verdict.UNKNOWN]
    assert exit_code(found) == 2


def test_a_refused_question_names_the_action_and_hostile_words_are_one_printable_line() -> None:
    def denied() -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetServiceQuota")

    def hostile() -> None:
        raise ClientError({"Error": {"Code": "Weird", "Message": "a\x1b[31m\nb" + "x" * 999}}, "Describe")

    assert asked("servicequotas:GetServiceQuota", denied) == Unknown(
        "no permission for servicequotas:GetServiceQuota", denied=True
    )
    told = asked("ec2:Describe", hostile)
    assert isinstance(told, Unknown)
    assert told.why.isprintable()
    assert len(told.why) < 400


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud]:
    with running_cloud() as running:
        yield running


@pytest.mark.loopback
def test_the_stand_in_cloud_is_asked_and_never_changed(cloud: RunningCloud) -> None:
    plan = a_plan(("us-east-2\n", "us-east-1\n"), ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"))
    trail = cloud.model.trail
    trail.clear()
    facts = gather(plan, catalog.load(), cloud.client, Unknown("not asked"))
    assert isinstance(facts.identity, str)
    assert not isinstance(facts.zones, Unknown)
    images = facts.images[IMAGE]
    assert not isinstance(images, Unknown)
    assert [image.state for image in images] == ["available"]
    assert facts.roles == {needs.SPOT_ROLE: False, needs.FLEET_ROLE: False}
    assert {entry.action.startswith(("Describe", "Get", "List")) for entry in trail} == {True}
    found = report(plan, catalog.load(), facts, NOW)
    verdicts = {line.what: line.verdict for line in found}
    assert verdicts["zone us-east-1a"] is Verdict.OK
    assert verdicts[f"image {IMAGE}"] is Verdict.OK
    assert {line.what for line in found if line.verdict is Verdict.FAIL} == {
        f"service-linked role {role}" for role in (needs.SPOT_ROLE, needs.FLEET_ROLE)
    }
    rehearsed = gather(plan, catalog.load(), cloud.client, Unknown("not asked"), stand_in=True)
    assert exit_code(report(plan, catalog.load(), rehearsed, NOW)) == 0


@pytest.mark.loopback
@pytest.mark.parametrize(
    "code", ["UnauthorizedOperation", "RequestLimitExceeded", "InternalError", "OptInRequired"]
)
def test_an_account_that_tells_nothing_is_no_good_one(cloud: RunningCloud, code: str) -> None:
    asked_of_it = ("GetServiceQuota", "DescribeImages", "DescribeAvailabilityZones", "GetRole",
                   "DescribeInstanceTypeOfferings", "DescribeCapacityReservations")  # fmt: skip
    cloud.fresh()
    for action in asked_of_it:
        cloud.model.faults.next_error(action, code, 30)
    facts = gather(a_plan(), catalog.load(), cloud.client, Unknown("not asked"))
    found = lines(facts)
    assert {line.verdict for line in found if line.what != "credentials"} == {Verdict.UNKNOWN}
    assert all(code in line.found or "no permission for" in line.found for line in found[1:-1])
    assert exit_code(found) == 2
    cloud.fresh()


def test_a_file_backends_lock_is_seen_with_its_holder(tmp_path: Path) -> None:
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
        ("name: x\n", "", "no backend is named"),
        ("name: x\nbackend: {url: 'https://api.example.org'}\n", "", "kept by a service (https)"),
        (": not: yaml: [\n", "", "no backend is named"),
        ("name: x\n", "file:///nonexistent/place", "is no folder here"),
    ],
)
def test_a_state_that_cannot_be_seen_is_unknown(tmp_path: Path, project: str, url: str, words: str) -> None:
    (tmp_path / "Pulumi.yaml").write_text(project)
    found = state_lock("burst", tmp_path, {"PULUMI_BACKEND_URL": url} if url else {}, _none)
    assert isinstance(found, Unknown)
    assert words in found.why


def _none(_service: str) -> Any:
    raise AssertionError("nothing is asked of the cloud")

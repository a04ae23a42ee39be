"""What a request to the cloud is made of: group, interfaces, and tags for cost; all from the journal's entry."""

import json
from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import ask, job, sight
from support.fleet import some_bindings
from support.launches import alternative, with_changes

from gpucluster.cloud.aws import fleet_arguments, launch_arguments
from gpucluster.elastic.decide.offers import offers_in
from gpucluster.elastic.events import LaunchRequest
from gpucluster.elastic.launch_calls import fleet_call, launch_call
from gpucluster.plan.codec import from_json, to_json
from gpucluster.plan.model import Interface, InterfaceKind, Market, SlurmOnAws
from gpucluster.plan.names import TAG_ACCOUNT, TAG_JOB, placement_key
from gpucluster.slurm.parse import parse_job

CARDS = (
    Interface(card=0, device=0, kind=InterfaceKind.ENA),
    Interface(card=0, device=1, kind=InterfaceKind.EFA_ONLY),
    Interface(card=1, device=0, kind=InterfaceKind.EFA_ONLY),
)
ZONE = "us-east-2a"


def a_fabric() -> SlurmOnAws:
    plan = a_plan()
    (pool,) = plan.pools
    templates = tuple(replace(t, interfaces=CARDS) for t in pool.templates)
    return replace(plan, pools=(replace(pool, placement=True, templates=templates),))


def an_ask(**change: object) -> LaunchRequest:
    return with_changes(ask(1, "h200-2a-1"), **change)


def test_offer_has_the_placement_group_of_its_zone_and_the_interfaces():
    plan = a_fabric()
    bound = {placement_key("h200", ZONE): "g-a", placement_key("h200", "us-east-2b"): "g-b"}
    bindings = replace(some_bindings(plan), placement_groups=bound, groups={"node": "sg-1"})
    world = replace(sight(plan), bindings=bindings)
    for zone, group in ((ZONE, "g-a"), ("us-east-2b", "g-b")):
        offers = offers_in(world, plan.pools[0], zone)  # type: ignore[arg-type]
        assert {(o.spec.placement_group, o.spec.security_group, o.spec.interfaces) for o in offers} == {
            (group, "sg-1", CARDS)
        }


def test_t27_what_was_bought_ahead_is_never_forced_into_a_group():
    plan = a_fabric()
    (pool,) = plan.pools
    held = tuple(replace(s, market=Market.RESERVATION, reservation="cr-1") for s in pool.sources)
    plan = replace(plan, pools=(replace(pool, sources=held),))
    bindings = replace(some_bindings(plan), placement_groups={placement_key("h200", ZONE): "g-a"})
    offers = offers_in(replace(sight(plan), bindings=bindings), plan.pools[0], ZONE)  # type: ignore[arg-type]
    assert {o.spec.placement_group for o in offers} == {None}


def test_t31_a_launch_with_interfaces_lists_each_in_full_and_names_no_subnet_beside_them():
    made = launch_arguments(
        launch_call("burst", an_ask(interfaces=CARDS, security_group="sg-1", placement_group="g"))
    )
    assert "SubnetId" not in made
    assert made["Placement"] == {"GroupName": "g"}
    assert made["NetworkInterfaces"][1] == {
        "NetworkCardIndex": 0, "DeviceIndex": 1, "InterfaceType": "efa-only", "SubnetId": "subnet-0",
        "Groups": ["sg-1"], "DeleteOnTermination": True,
    }  # fmt: skip
    plain = launch_arguments(launch_call("burst", an_ask()))
    assert (plain["SubnetId"], plain.keys() & {"Placement", "NetworkInterfaces"}) == ("subnet-0", set())


def test_fleet_has_the_placement_group_at_each_override():
    request = an_ask(placement_group="g")
    other = alternative(request, "p5e.48xlarge", template_id="lt-1")
    made = fleet_arguments(fleet_call("burst", replace(request, alternatives=(other,))))
    places = [c["Overrides"][0]["Placement"] for c in made["LaunchTemplateConfigs"]]
    assert places == [{"GroupName": "g"}] * 2


def test_instances_are_tagged_with_job_and_account():
    made = launch_call("burst", an_ask(jobs=(41, 42), accounts=("vision",)))
    assert (made.tags[TAG_JOB], made.tags[TAG_ACCOUNT]) == ("41 42", "vision")
    assert not launch_call("burst", an_ask(jobs=())).tags.keys() & {TAG_JOB, TAG_ACCOUNT}


@pytest.mark.parametrize(
    ("jobs", "accounts"),
    [
        (tuple(range(10**8, 10**8 + 400)), ()),
        ((1,), ("x" * 5000,)),
        ((1,), ("a\nb<script>", "é☃", "Kühl & Söhne")),
    ],
)
def test_tag_value_is_valid_in_every_service(jobs: tuple[int, ...], accounts: tuple[str, ...]):
    tags = launch_call("burst", an_ask(jobs=jobs, accounts=accounts)).tags
    for key in tags.keys() & {TAG_JOB, TAG_ACCOUNT}:
        assert len(tags[key]) <= 256
        assert all(c.isascii() and (c.isalnum() or c in " +-=._:/@") for c in tags[key])


def test_request_survives_the_journal():
    entry = an_ask(interfaces=CARDS, security_group="sg-1", placement_group="g", accounts=("a",))
    assert from_json(LaunchRequest, json.loads(json.dumps(to_json(entry)))) == entry


def test_account_is_read_from_the_json_of_slurm():
    item = {
        "job_id": 7, "job_state": ["PENDING"], "node_count": {"number": 1}, "requeue": True, "batch_flag": True,
        "account": "vision",
    }  # fmt: skip
    assert parse_job(item).account == "vision"
    assert job(7).account == ""

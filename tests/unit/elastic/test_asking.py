"""What a request to the cloud is made of: group, interfaces, and tags for cost; all from the journal's entry."""

import json
from dataclasses import replace

import pytest
from builders import a_plan
from fleet import some_bindings
from moments import ask, job, sight

from gpucluster.cloud.aws import fleet_arguments, launch_arguments
from gpucluster.elastic.asking import fleet_request, request
from gpucluster.elastic.decide.offers import offers_in
from gpucluster.elastic.events import Alternative, Ask
from gpucluster.elastic.observe import parse_job
from gpucluster.plan.codec import from_json, to_json
from gpucluster.plan.model import ClusterPlan, Interface, InterfaceKind, Market
from gpucluster.plan.names import TAG_ACCOUNT, TAG_JOB, placement_key

CARDS = (
    Interface(card=0, device=0, kind=InterfaceKind.ENA),
    Interface(card=0, device=1, kind=InterfaceKind.EFA_ONLY),
    Interface(card=1, device=0, kind=InterfaceKind.EFA_ONLY),
)
ZONE = "us-east-2a"


def a_fabric() -> ClusterPlan:
    plan = a_plan()
    (pool,) = plan.pools
    templates = tuple(replace(t, interfaces=CARDS) for t in pool.templates)
    return replace(plan, pools=(replace(pool, placement=True, templates=templates),))


def an_ask(**change: object) -> Ask:
    return replace(ask(1, "h200-2a-1"), **change)  # type: ignore[arg-type]


def test_an_offer_names_the_group_of_its_zone_and_the_interfaces():
    plan = a_fabric()
    bound = {placement_key("h200", ZONE): "g-a", placement_key("h200", "us-east-2b"): "g-b"}
    bindings = replace(some_bindings(plan), placement_groups=bound, groups={"node": "sg-1"})
    world = replace(sight(plan), bindings=bindings)
    for zone, group in ((ZONE, "g-a"), ("us-east-2b", "g-b")):
        offers = offers_in(world, plan.pools[0], zone)  # type: ignore[arg-type]
        assert {(o.placement_group, o.group, o.interfaces) for o in offers} == {(group, "sg-1", CARDS)}


def test_t27_what_was_bought_ahead_is_never_forced_into_a_group():
    plan = a_fabric()
    (pool,) = plan.pools
    held = tuple(replace(s, market=Market.RESERVATION, reservation="cr-1") for s in pool.sources)
    plan = replace(plan, pools=(replace(pool, sources=held),))
    bindings = replace(some_bindings(plan), placement_groups={placement_key("h200", ZONE): "g-a"})
    offers = offers_in(replace(sight(plan), bindings=bindings), plan.pools[0], ZONE)  # type: ignore[arg-type]
    assert {o.placement_group for o in offers} == {None}


def test_t31_a_launch_with_interfaces_lists_each_in_full_and_names_no_subnet_beside_them():
    made = launch_arguments(request("burst", an_ask(interfaces=CARDS, group="sg-1", placement_group="g")))
    assert "SubnetId" not in made
    assert made["Placement"] == {"GroupName": "g"}
    assert made["NetworkInterfaces"][1] == {
        "NetworkCardIndex": 0, "DeviceIndex": 1, "InterfaceType": "efa-only", "SubnetId": "subnet-0",
        "Groups": ["sg-1"], "DeleteOnTermination": True,
    }  # fmt: skip
    plain = launch_arguments(request("burst", an_ask()))
    assert (plain["SubnetId"], plain.keys() & {"Placement", "NetworkInterfaces"}) == ("subnet-0", set())


def test_a_fleet_names_the_group_at_each_override():
    other = Alternative(machine="p5e.48xlarge", template_id="lt-1", template_version=1, price=0)
    made = fleet_arguments(fleet_request("burst", an_ask(alternatives=(other,), placement_group="g")))
    places = [c["Overrides"][0]["Placement"] for c in made["LaunchTemplateConfigs"]]
    assert places == [{"GroupName": "g"}] * 2


def test_instances_are_tagged_with_job_and_account():
    made = request("burst", an_ask(jobs=(41, 42), accounts=("vision",)))
    assert (made.tags[TAG_JOB], made.tags[TAG_ACCOUNT]) == ("41 42", "vision")
    assert not request("burst", an_ask(jobs=())).tags.keys() & {TAG_JOB, TAG_ACCOUNT}


@pytest.mark.parametrize(
    ("jobs", "accounts"),
    [
        (tuple(range(10**8, 10**8 + 400)), ()),
        ((1,), ("x" * 5000,)),
        ((1,), ("a\nb<script>", "é☃", "Kühl & Söhne")),
    ],
)
def test_a_tags_value_is_one_that_every_service_takes(jobs: tuple[int, ...], accounts: tuple[str, ...]):
    tags = request("burst", an_ask(jobs=jobs, accounts=accounts)).tags
    for key in tags.keys() & {TAG_JOB, TAG_ACCOUNT}:
        assert len(tags[key]) <= 256
        assert all(c.isascii() and (c.isalnum() or c in " +-=._:/@") for c in tags[key])


def test_a_repeat_is_identical_and_an_older_entry_is_read():
    entry = an_ask(interfaces=CARDS, group="sg-1", placement_group="g", accounts=("a",))
    assert from_json(Ask, json.loads(json.dumps(to_json(entry)))) == entry
    older = {
        k: v for k, v in json.loads(json.dumps(to_json(an_ask()))).items()
        if k not in ("interfaces", "group", "placement_group", "accounts")
    }  # fmt: skip
    assert from_json(Ask, older) == an_ask()


def test_the_account_is_read_from_slurms_json():
    item = {
        "job_id": 7, "job_state": ["PENDING"], "node_count": {"number": 1}, "requeue": True, "batch_flag": True,
        "account": "vision",
    }  # fmt: skip
    assert parse_job(item).account == "vision"
    assert job(7).account == ""

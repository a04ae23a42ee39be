"""What a plan has bought ahead is in the sandbox's cloud, or no node of it could be launched."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from gpucluster.cli.desk import resolve_file
from gpucluster.cloud.model import CloudModel
from gpucluster.cloud.port import Reservation
from gpucluster.plan.model import Lustre, LustreLink, Market, Mount
from gpucluster.sandbox import bought
from gpucluster.sandbox.scenario import Scenario

STEADY = Path(__file__).parents[3] / "stacks/steady.yaml"


class Orders:
    """The operator's client, without the HTTP between."""

    def __init__(self, model):
        self.scenario = Scenario(model)

    def reserve(self, machine, zone, count, **more):
        body = json.dumps({"machine": machine, "zone": zone, "count": count, **more}).encode()
        self.scenario.answer("POST", "/_gpucluster/reserve", body, 0.0)


def steady():
    return resolve_file(STEADY).plan


def test_each_reservation_of_the_plan_is_there_with_its_id_and_room_for_the_pool():
    model = CloudModel(random.Random(1))  # noqa: S311 - dice that fall the same each time
    bought.make(steady(), Orders(model))
    assert model.reservations(("cr-0123456789abcdef0",), 0.0) == (
        Reservation(
            id="cr-0123456789abcdef0",
            state="active",
            machine="p5.48xlarge",
            zone="us-east-1a",
            total=2,
            free=2,
        ),
    )


def test_what_a_scenario_clears_is_not_what_was_bought():
    model = CloudModel(random.Random(1))  # noqa: S311 - dice that fall the same each time
    bought.make(steady(), Orders(model))
    model.clear()
    assert model.reservations(("cr-0123456789abcdef0",), 0.0)


def test_pools_that_share_a_reservation_have_room_for_both_and_a_source_takes_no_more_than_its_max():
    plan = steady()
    first = plan.pools[0]
    bounded = replace(first.sources[0], max=1)
    two = replace(plan, pools=(first, replace(first, name="other", sources=(bounded,))))
    assert [one.count for one in bought.bought(two)] == [3]


@pytest.mark.parametrize(
    ("market", "word"),
    [(Market.RESERVATION, "capacity reservation cr-"), (Market.CAPACITY_BLOCK, "capacity block cr-")],
)
def test_people_are_told_of_each(market, word):
    plan = steady()
    pool = plan.pools[0]
    source = replace(pool.sources[0], market=market)
    said = bought.explain(replace(plan, pools=(replace(pool, sources=(source,)),)))
    assert [line.startswith(word) for line in said] == [True]


def test_the_sites_buckets_that_a_lustre_follows_are_there_each_once():
    class Store:
        made: list[str] = []  # noqa: RUF012

        def create_bucket(self, *, Bucket):  # noqa: N803
            self.made.append(Bucket)

    lustre = Mount(
        path="/data",
        lustre=Lustre(
            zone="us-east-1a",
            size_gib=1200,
            links=tuple(LustreLink(path=f"/{n}", s3=f"s3://sets/{n}") for n in "ab"),
        ),
    )
    plan = replace(steady(), storage=(lustre,))
    bought.make_buckets(plan, Store())
    assert Store.made == ["sets"]
    assert any("bucket sets" in line for line in bought.explain(plan))

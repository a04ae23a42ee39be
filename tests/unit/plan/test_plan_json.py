"""plan.json: every plan comes back equal, its `kind` decides the class, and an illegal combination raises."""

import json
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_kube_plan, a_lab_plan, a_plan

from gpucluster.cli.context import resolve_file
from gpucluster.plan import codec, plan_json
from gpucluster.plan.model import (
    ClusterPlan,
    Hardware,
    HostPool,
    KubernetesOnAws,
    Market,
    Mount,
    NfsFromHead,
    NodeShape,
    SlotRange,
    SlurmOnAws,
    SlurmOnHosts,
    Source,
)

STACKS = sorted((Path(__file__).parents[3] / "stacks").glob("*.yaml"))
WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=6)


def _slots(draw: st.DrawFn) -> SlotRange:
    first = draw(st.integers(0, 9))
    return SlotRange(
        zone=draw(WORDS), prefix="n-", first=first, last=first + draw(st.integers(0, 3)), width=2
    )


def _host_pool(draw: st.DrawFn) -> HostPool:
    slots = draw(st.lists(_values(SlotRange), max_size=2))
    count = sum(len(span) for span in slots)
    addresses = draw(st.lists(WORDS, min_size=count, max_size=count))
    return HostPool(
        name=draw(WORDS),
        boot_timeout_s=draw(st.integers()),
        shape=draw(_values(NodeShape)),
        slots=tuple(slots),
        addresses=tuple(addresses),
        hardware=draw(_values(Hardware)),
    )


def _source(draw: st.DrawFn) -> Source:
    market = draw(st.sampled_from(Market))
    return Source(
        position=draw(st.integers(0, 9)),
        market=market,
        machines=tuple(draw(st.lists(WORDS, max_size=2))),
        zones=tuple(draw(st.lists(WORDS, max_size=2))),
        max=draw(st.none() | st.integers()),
        reservation=draw(WORDS) if market.is_reserved else None,
        max_price=draw(st.none() | st.integers()) if market is Market.SPOT else None,
    )


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: st.integers(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
}
OWN: dict[Any, Callable[[st.DrawFn], Any]] = {SlotRange: _slots, HostPool: _host_pool, Source: _source}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the plan's fields, small ones."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(_values, args))
    if origin is tuple:
        return st.lists(_values(args[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(WORDS, _values(args[1]), max_size=2)
    return _of_class(hint)


def _of_class(kind: Any) -> st.SearchStrategy[Any]:
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in OWN:
        return st.composite(OWN[kind])()
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        made: Any = kind
        return st.builds(made, **{f.name: _values(hints[f.name]) for f in fields(kind)})
    return st.sampled_from(kind)


@pytest.mark.parametrize("file", STACKS, ids=[file.stem for file in STACKS])
def test_plan_of_each_stack_comes_back_equal(file: Path) -> None:
    plan = resolve_file(file).plan
    text = codec.dumps(plan)
    assert plan_json.load(text) == plan
    assert codec.dumps(plan_json.load(text)) == text


@settings(max_examples=60)
@given(_values(SlurmOnAws) | _values(SlurmOnHosts))
def test_any_slurm_plan_comes_back_equal(plan: ClusterPlan) -> None:
    assert plan_json.load(codec.dumps(plan)) == plan
    assert plan_json.load_slurm(codec.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("plan", "kind"),
    [(a_plan(), SlurmOnAws), (a_lab_plan(), SlurmOnHosts), (a_kube_plan(), KubernetesOnAws)],
    ids=["aws", "hosts", "kubernetes"],
)
def test_kind_decides_the_class(plan: ClusterPlan, kind: type[ClusterPlan]) -> None:
    assert type(plan_json.load(codec.dumps(plan))) is kind
    assert json.loads(codec.dumps(plan))["kind"] == kind.kind


def _without_kind(plan: ClusterPlan, *path: str) -> str:
    values = json.loads(codec.dumps(plan))
    part = values
    for key in path:
        part = part[key]
    del part["kind"]
    return json.dumps(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_without_kind(a_plan()), r"^plan\.kind: it is missing, expected kubernetes-on-aws or slurm-on-aws or"),
        (codec.dumps(a_plan()).replace('"slurm-on-aws"', '"slurm"'), r"^plan\.kind: found 'slurm', expected"),
        (codec.dumps(a_plan()).replace('"slurm-on-aws"', "7"), r"^plan\.kind: found 7, expected"),
        (_without_kind(a_plan(), "image"), r"^plan\.image\.kind: it is missing, expected id or name"),
        (_without_kind(a_plan(), "aws", "network"), r"^plan\.aws\.network\.kind: it is missing"),
        (codec.dumps(a_plan()).replace('"slurm-on-aws"', '"slurm-on-hosts"'), r"^plan: unknown keys access, aws"),
        (codec.dumps(a_lab_plan()).replace('"nfs-from-head"', '"efs"'), r"^plan\.storage\[0\]\.source: unknown keys"),
        (codec.dumps(a_plan()).replace('"spot"', '"cheap"', 1), r"\.market: 'cheap' is not a valid Market"),
    ],
)  # fmt: skip
def test_wrong_kind_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_json.load(text)


def test_plan_without_slurm_is_refused_where_slurm_is_needed() -> None:
    with pytest.raises(ValueError, match=r"^plan\.kind: found 'kubernetes-on-aws', expected slurm-on-aws or"):
        plan_json.load_slurm(codec.dumps(a_kube_plan()))


def test_pool_of_hosts_has_an_address_for_each_host() -> None:
    (pool,) = a_lab_plan().pools
    with pytest.raises(ValueError, match=r"^pool h100: 3 addresses, expected 4, one a host$"):
        replace(pool, addresses=pool.addresses[1:])


def test_only_spot_has_a_max_price() -> None:
    spot, on_demand = a_plan().pools[0].sources
    assert replace(spot, max_price=1).max_price == 1
    with pytest.raises(ValueError, match="only spot has a max_price"):
        replace(on_demand, max_price=1)


def test_kubernetes_without_slurm_has_no_head_that_exports() -> None:
    exported = Mount(path="/home", source=NfsFromHead(server="10.60.0.10", export="/home"))
    with pytest.raises(ValueError, match=r"^storage /home: found NFS from the head"):
        replace(a_kube_plan(), storage=(exported,))

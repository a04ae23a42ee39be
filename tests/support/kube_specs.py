"""A strategy for valid Kubernetes specs: pools with and without GPUs, slices, several sources, teams that share them."""

import json
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from gpucluster import catalog
from gpucluster.plan.kubernetes import allocatable, gpus_of
from gpucluster.plan.model.values import CPU, accelerators
from gpucluster.spec import ClusterSpec, WorkloadsSpec, inspect_text, inspect_workloads_text
from gpucluster.spec.load_workloads import WorkloadsReport
from gpucluster.spec.part import require

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,21}[a-z0-9]", fullmatch=True).filter(
    lambda name: not name.startswith("kube-") and name != "default"
)
MIG = {
    "p4d.24xlarge": [{"1g.5gb": 7}, {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}],
    "p4de.24xlarge": [{"1g.10gb": 7}, {"1g.20gb": 2, "3g.40gb": 1}, {"7g.80gb": 1}],
    "p5.48xlarge": [{"1g.10gb": 7}],
    "p5en.48xlarge": [{"2g.35gb": 3}, {"4g.71gb": 1, "3g.71gb": 1}],
}
MACHINES = (*MIG, "g6e.48xlarge", "m7i.2xlarge", "m7i.xlarge")
MOUNTS = [
    [],
    [{"mount": "/data", "fsx_lustre": {"zone": "us-east-1a", "size": "1200GiB"}}],
    [{"mount": "/Big/data.1", "nfs": {"server": "192.0.2.5", "export": "/srv"}}],
    [
        {"mount": "/a-b", "nfs": {"server": "192.0.2.5", "export": "/srv"}},
        {"mount": "/a/b", "nfs": {"server": "192.0.2.6", "export": "/srv"}},
    ],
]


@st.composite
def pools(draw: st.DrawFn, name: str) -> dict[str, Any]:
    machine = draw(st.sampled_from(MACHINES))
    least = draw(st.integers(0, 3))
    zones = draw(st.sampled_from([None, ["us-east-1a"], ["us-east-1b", "us-east-1a"]]))
    sources = [{"from": "spot", "machines": [machine]}, {"from": "on-demand", "machines": [machine]}]
    elastic = max(draw(st.integers(0, 4)), 0 if least else 1)
    used = draw(st.sampled_from([sources, sources[:1], sources[1:]]))
    if zones and (len(used) == 1 or elastic > 1):
        used[0]["zones"] = zones
    if "zones" in used[0] and len(used) > 1:
        used[0]["max"] = least + draw(st.integers(1, elastic - 1))
    pool: dict[str, Any] = {
        "name": name,
        "nodes": {"min": least, "max": least + elastic},
        "capacity": used,
    }
    if machine in MIG and draw(st.booleans()):
        pool["sharing"] = {"mig": draw(st.sampled_from(MIG[machine]))}
    return pool


@st.composite
def kube_specs(draw: st.DrawFn, prefix: str = "") -> ClusterSpec:
    """`prefix`: of the names of cluster and teams, so that several specs fit into one Kubernetes."""
    short = NAMES.filter(lambda name: len(prefix + name) <= 24)
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    made = [draw(pools(name)) for name in names]
    left = offers(made)
    teams = []
    for team in draw(st.lists(short, min_size=1, max_size=3, unique=True)):
        quota: dict[str, Any] = {}
        for resource, amount in left.items():
            took = draw(st.integers(0, amount))
            if took or draw(st.booleans()):
                quota[resource] = f"{took}m" if resource == CPU else took
                left[resource] -= took
        some = any(str(amount) not in ("0", "0m") for amount in quota.values())
        teams.append(
            {"name": f"{prefix}{team}", "quota": quota, "may_borrow": draw(st.booleans()) or not some}
        )
    assume(all(team["quota"] for team in teams))
    where = draw(
        st.sampled_from([{"control_plane": "eks"}, {"existing": {"context": "prod", "eks_name": "prod"}}])
    )
    text = {
        "schema": 1,
        "name": f"{prefix}{draw(short)}",
        "aws": {
            "region": "us-east-1",
            "network": {"cidr": "10.0.0.0/16", "zones": ["us-east-1a", "us-east-1b"]},
        },
        "kubernetes": {"version": draw(st.sampled_from(["1.34", "1.36"])), **where, "teams": teams},
        "pools": made,
    }
    if draw(st.booleans()):
        text["kubernetes"]["trainer"] = {"image": "x"}
    storage = draw(st.sampled_from(MOUNTS))
    if storage:
        text["storage"] = storage
    report = inspect_text(json.dumps(text), "any.yaml", catalog.load())
    assert report.errors == (), [str(problem) for problem in report.errors]
    return report.result()


def offers(made: list[dict[str, Any]]) -> dict[str, int]:
    """The total resources of the pools, counted independently of the code under test as far as possible."""
    total: dict[str, int] = {}
    for pool in made:
        machines = [catalog.load().machines[source["machines"][0]] for source in pool["capacity"]]
        mig = pool.get("sharing", {}).get("mig", {})
        gives = allocatable(machines, mig)
        for resource in accelerators(gpus_of(machines), mig) or {CPU: 0}:
            total[resource] = total.get(resource, 0) + gives[resource] * pool["nodes"]["max"]
    return total


@st.composite
def workloads_for(draw: st.DrawFn, spec: ClusterSpec) -> WorkloadsSpec | None:
    """Services and gangs of its teams that `check` accepts; None if it accepts none."""
    teams = require(spec.kubernetes).teams
    resources = sorted({resource for team in teams for resource in team.quota} | {CPU, "memory"})
    amounts = {CPU: ["500m", 1, 8], "memory": ["512Mi", "64Gi"]}
    taken: dict[str, list[dict[str, Any]]] = {"serve": [], "train": []}
    for kind in draw(st.lists(st.sampled_from(["serve", "train"]), min_size=1, max_size=4)):
        one: dict[str, Any] = {"name": f"w{sum(map(len, taken.values()))}", "image": "x"}
        one["team"] = draw(st.sampled_from([team.name for team in teams]))
        if kind == "serve":
            asked = draw(st.lists(st.sampled_from(resources), min_size=1, max_size=2, unique=True))
            one["resources"] = {r: draw(st.sampled_from(amounts.get(r, [1, 3, 8]))) for r in asked}
            one["replicas"] = {"min": 1, "max": draw(st.integers(1, 4))}
            one["scale_on"] = {"queue_depth": 3}
        else:
            one |= {"nodes": draw(st.integers(1, 4)), "gpus_per_node": draw(st.sampled_from([1, 4, 8]))}
            place = draw(st.sampled_from([{}, {"required": "zone"}, {"preferred": "zone"}, {"required": "leaf"}]))  # fmt: skip
            one |= {"topology": place} if place else {}
            one |= draw(st.sampled_from([{}, {"kind": "TrainJob"}]))
        if _workloads(spec, {kind: [one]}).spec is not None:
            taken[kind].append(one)
    return _workloads(spec, {kind: some for kind, some in taken.items() if some}).spec


def _workloads(spec: ClusterSpec, what: dict[str, Any]) -> WorkloadsReport:
    text = json.dumps({"schema": 1, "cluster": spec.name, **what})
    return inspect_workloads_text(text, "any.yaml", spec, catalog.load())

"""Resources of the program, without an engine: every type and property is known, tagged, private and pinned."""

import base64
import json
from functools import partial
from typing import Any

import pytest
from support import eks_plans
from support.aws_plans import declared_of, research
from support.builders import a_kube_plan, a_lab_plan, a_plan
from support.declared import Declared, declared_by

from gpucluster.artifacts import unpack
from gpucluster.aws.program import declare, main
from gpucluster.catalog import load as load_catalog
from gpucluster.errors import GpuclusterError
from gpucluster.files import checkout
from gpucluster.plan import codec, names, plan_json
from gpucluster.plan.model import AwsPlan, Bindings, ClusterPlan
from gpucluster.plan.resolve import resolve
from gpucluster.sandbox.provider.check import check
from gpucluster.sandbox.provider.servicer import KEYS
from gpucluster.sandbox.provider.table import TYPES
from gpucluster.spec import load as load_spec


@pytest.fixture(scope="module")
def resources() -> tuple[Declared, ...]:
    return declared_of(a_plan())


@pytest.fixture(scope="module")
def everything() -> tuple[Declared, ...]:
    return (*declared_of(research()), *eks_plans.resources_of(eks_plans.everything()))


def the_stack(name: str) -> AwsPlan:
    root = checkout()
    assert root is not None
    plan = resolve(load_spec(root / "stacks" / f"{name}.yaml"), load_catalog())
    assert isinstance(plan, AwsPlan)
    return plan


def of(resources: tuple[Declared, ...], kind: str) -> dict[str, Any]:
    return {r.name: r.inputs for r in resources if r.type.rpartition(":")[2] == kind}


def own(resources: tuple[Declared, ...]) -> list[Declared]:
    return [r for r in resources if r.type.startswith("aws:") and r.type in TYPES]


def test_stand_in_provider_has_every_resource_type(everything: tuple[Declared, ...]) -> None:
    asked = {"aws:ec2/getAmi:getAmi"}
    used = {r.type for r in everything if r.type.startswith("aws:")} - asked
    assert used - TYPES.keys() == set()
    assert TYPES.keys() - used == set(), "a row that no program uses is not tested"


def test_stand_in_provider_has_every_property(everything: tuple[Declared, ...]) -> None:
    refused = [
        (r.name, f)
        for r in own(everything)
        for f in check(TYPES[r.type], r.inputs, {}, name=r.name, seed=b"", default_tags={}).failures
    ]
    assert refused == []


def test_components_have_type_tokens_of_gpucluster(everything: tuple[Declared, ...]) -> None:
    ours = {r.type for r in everything if not r.type.startswith(("aws:", "pulumi:"))}
    assert ours == {
        f"gpucluster:aws:{name}"
        for name in (
            *("Network", "Bucket", "Secrets", "FileSystems", "NodeIdentity", "Pools", "Events"),
            *("HeadIdentity", "LoginIdentity", "Bundle", "Head", "Login", "Budget"),
            *("EksAccess", "EksAddons", "EksCluster", "EksKarpenter", "EksNodeGroups"),
        )
    }


@pytest.mark.parametrize("name", ["burst", "hybrid", "kube", "research"])
def test_graph_is_golden(name: str, resources: tuple[Declared, ...], golden: Any) -> None:
    other = eks_plans.hybrid if name == "hybrid" else lambda: the_stack(name)
    found = resources if name == "burst" else eks_plans.resources_of(other())
    graph = [
        {"type": r.type, "name": r.name, "inputs": r.inputs} for r in found if r.type != "pulumi:pulumi:Stack"
    ]
    for one in graph:
        if "contentBase64" in one["inputs"]:  # the bundle has golden trees of its own
            one["inputs"] = {**one["inputs"], "contentBase64": "..."}
    golden(f"aws/{name}", {"resources.json": (json.dumps(graph, indent=1, sort_keys=True) + "\n").encode()})


def test_provider_tags_everything_with_the_cluster(resources: tuple[Declared, ...]) -> None:
    providers = of(resources, "aws")
    assert "defaultTags" not in providers["aws-objects"], "an S3 object takes ten tags"
    settings = providers["aws"]
    assert json.loads(settings["defaultTags"]) == {"tags": {names.TAG_CLUSTER: "burst"}}
    assert settings.keys() & KEYS == set(), "no key may stand in the state"


def test_templates_have_the_default_tags(
    resources: tuple[Declared, ...],
) -> None:
    for name, template in of(resources, "LaunchTemplate").items():
        tags = {t["resourceType"]: t["tags"] for t in template["tagSpecifications"]}
        spot = {"spot-instances-request"} if "-spot-" in name else set[str]()
        assert tags.keys() == {"instance", "network-interface", "volume"} | spot
        want = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: "node", names.TAG_POOL: "h200"}
        assert all(value == want for value in tags.values())


def test_each_pool_source_and_machine_has_a_template(resources: tuple[Declared, ...]) -> None:
    found = of(resources, "LaunchTemplate")
    assert {n: t["instanceType"] for n, t in found.items()} == {
        "burst-h200-spot-p5en.48xlarge": "p5en.48xlarge",
        "burst-h200-spot-p5e.48xlarge": "p5e.48xlarge",
        "burst-h200-on-demand-p5en.48xlarge": "p5en.48xlarge",
    }
    assert [n for n, t in found.items() if "instanceMarketOptions" in t] == [], "a launch names its market"
    for template in found.values():
        assert template["instanceInitiatedShutdownBehavior"] == "terminate"
        assert template["blockDeviceMappings"][0]["ebs"]["encrypted"] == "true"


def test_template_of_prepaid_capacity_names_the_reservation() -> None:
    """Without it, an instance becomes on-demand when the reservation is full (T25)."""
    ahead = "      - {from: reservation, id: cr-0123456789abcdef0, machines: [p5en.48xlarge], zones: [us-east-2a]}\n"
    found = declared_by(partial(declare, a_plan(("    capacity:\n", f"    capacity:\n{ahead}"))))
    assert [
        r
        for r in own(found)
        if check(TYPES[r.type], r.inputs, {}, name=r.name, seed=b"", default_tags={}).failures
    ] == []
    named = {n: t.get("capacityReservationSpecification") for n, t in of(found, "LaunchTemplate").items()}
    target = {"capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}}
    assert named.pop("burst-h200-cr-0123456789abcdef0-p5en.48xlarge") == target
    assert set(named.values()) == {None}


def test_t33_metadata_needs_a_token_and_has_hop_limit_one(resources: tuple[Declared, ...]) -> None:
    machines = {**of(resources, "LaunchTemplate"), **of(resources, "Instance")}
    closed = {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1}
    assert [name for name, m in machines.items() if m["metadataOptions"] != closed] == []


def test_no_ingress_rule_allows_every_address(resources: tuple[Declared, ...]) -> None:
    rules = of(resources, "SecurityGroupIngressRule")
    assert [name for name, rule in rules.items() if "cidrIpv4" in rule] == []
    ports = {(r.get("fromPort"), r.get("toPort")) for r in rules.values()}
    assert ports == {(6817, 6817), (6890, 6890), names.SRUN_PORTS, (6818, 6818), (None, None)}


def test_four_event_rules_send_to_one_queue(resources: tuple[Declared, ...]) -> None:
    rules, targets = of(resources, "EventRule"), of(resources, "EventTarget")
    assert (
        rules.keys()
        == targets.keys()
        == {
            "burst-spot",
            "burst-rebalance",
            "burst-state",
            "burst-maintenance",
        }
    )
    (queue,) = of(resources, "Queue").values()
    assert "name" not in queue, "a name that was deleted is taken for a minute (T41)"
    assert len(of(resources, "QueuePolicy")) == 1


def test_bucket_blocks_public_access(resources: tuple[Declared, ...]) -> None:
    (block,) = of(resources, "BucketPublicAccessBlock").values()
    assert [k for k, v in block.items() if k != "bucket" and v is not True] == []
    (policy,) = of(resources, "BucketPolicy").values()
    (statement,) = json.loads(policy["policy"])["Statement"]
    assert (statement["Effect"], statement["Condition"]) == (
        "Deny",
        {"Bool": {"aws:SecureTransport": "false"}},
    )


def test_program_sets_no_value_of_the_secret(resources: tuple[Declared, ...]) -> None:
    assert [r.type for r in resources if "SecretVersion" in r.type] == []
    (secret,) = of(resources, "Secret").values()
    assert secret["recoveryWindowInDays"] == 0


def test_image_is_looked_up_by_owner_and_exact_name(resources: tuple[Declared, ...]) -> None:
    (asked,) = of(resources, "getAmi").values()
    assert asked["owners"] == ["self"]
    assert asked["filters"] == [{"name": "name", "values": ["gpucluster-ubuntu-24.04-slurm-24.11"]}]


def test_bundle_names_templates_by_version(resources: tuple[Declared, ...]) -> None:
    (bundle,) = of(resources, "BucketObjectv2").values()
    files = {a.path: a.content for a in unpack(base64.b64decode(bundle["contentBase64"]))}
    assert plan_json.load(files[names.PLAN_FILE]) == a_plan()
    bindings = codec.loads(Bindings, files[names.BINDINGS_FILE])
    assert {key: t.version for key, t in bindings.templates.items()} == {
        t.key: 1 for pool in a_plan().pools for t in pool.templates
    }
    assert bindings.subnets.keys() == {"us-east-2a", "us-east-2b"}
    assert "slurm/slurm.conf" in files


def test_two_runs_declare_the_same_bytes(resources: tuple[Declared, ...]) -> None:
    assert declared_by(partial(declare, a_plan())) == resources


def test_main_reads_the_spec_with_the_name_of_the_stack(
    resources: tuple[Declared, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = checkout()
    assert root is not None
    monkeypatch.chdir(root)  # as Pulumi does
    by_hand = declared_by(main)
    assert {r.type for r in by_hand} == {r.type for r in resources}


EXISTING = a_kube_plan(("control_plane: eks", "existing: {context: prod, eks_name: prod}"))


@pytest.mark.parametrize(
    ("plan", "lacks"), [(EXISTING, "a Kubernetes that exists"), (a_lab_plan(), "`aws:`")]
)
def test_cluster_without_resources_on_aws_is_refused_before_any_resource(
    plan: ClusterPlan, lacks: str
) -> None:
    with pytest.raises(GpuclusterError, match=lacks) as caught:
        declare(plan)
    assert caught.value.exit_code == 2
    assert f"render stacks/{plan.name}.yaml" in str(caught.value)

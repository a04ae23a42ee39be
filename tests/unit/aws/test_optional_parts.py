"""Resources of plans with optional parts: addresses, volumes, file systems, images, budget."""

from dataclasses import replace
from typing import Any

import pytest
from support.aws_plans import (
    APPS,
    BOUNDARY,
    DATA,
    HOME,
    LOGIN,
    STATE,
    Change,
    aws,
    both,
    declared_of,
    exports,
    head,
    mounts,
    network,
    own_image,
    pools,
    research,
    standby,
    top,
)
from support.builders import a_plan
from support.declared import ACCOUNT, Declared

from gpucluster.aws.budget import dollars
from gpucluster.aws.head import DEVICES, device_names
from gpucluster.aws.pools import placement_zones
from gpucluster.plan.model import Access, Market, Nvme, SiteEfs, SiteLustre


def declared(change: Change) -> tuple[Declared, ...]:
    return declared_of(change(a_plan()))


def names(found: tuple[Declared, ...]) -> set[str]:
    return {f"{r.type.rpartition(':')[2]} {r.name}" for r in found if r.name and not r.type.startswith("gpu")}


def of(found: tuple[Declared, ...], kind: str) -> dict[str, Any]:
    """Return the inputs of each declared resource, by name."""
    made = (r for r in found if not r.type.startswith("gpucluster:"))
    return {r.name: r.inputs for r in made if r.type.rpartition(":")[2] == kind}


@pytest.fixture(scope="module")
def plain() -> set[str]:
    return names(declared(top()))


@pytest.fixture(scope="module")
def everything() -> tuple[Declared, ...]:
    return declared_of(research())


NAT_OF_A = {"Eip burst-nat-us-east-2a", "NatGateway burst-nat-us-east-2a"}
ROUTES = {"Route burst-nat-us-east-2a", "Route burst-nat-us-east-2b"}
PUBLIC = {
    "InternetGateway burst",
    "RouteTable burst",
    "Route burst-internet",
    *(f"{kind} burst-public-us-east-2{z}" for kind in ("Subnet", "RouteTableAssociation") for z in "ab"),
}
LOGIN_ROLE = {f"{kind} burst-login" for kind in ("Role", "RolePolicy", "InstanceProfile", "SecurityGroup")}
RULES = ("SecurityGroupIngressRule", "SecurityGroupEgressRule")
ROWS: list[tuple[str, Change, set[str], set[str]]] = [
    (
        "a gateway in each zone",
        network(nat=("us-east-2a", "us-east-2b")),
        {"Eip burst-nat-us-east-2b", "NatGateway burst-nat-us-east-2b"},
        set(),
    ),
    ("no gateway", network(nat=()), set(), NAT_OF_A | ROUTES),
    (
        "endpoints",
        network(endpoints=("ec2", "sqs")),
        {
            "VpcEndpoint burst-endpoint-ec2",
            "VpcEndpoint burst-endpoint-sqs",
            "SecurityGroup burst-endpoints",
        },
        set(),
    ),
    (
        "no public part at all",
        lambda p: network(
            nat=(), subnets=tuple(replace(s, public_cidr=None) for s in p.aws.network.subnets)
        )(p),
        set(),
        NAT_OF_A | ROUTES | PUBLIC,
    ),
    (
        "login with ssh has an address of its own",
        top(login=LOGIN, access=Access(ssh_from=("192.0.2.0/24",))),
        LOGIN_ROLE | {"Instance burst-login-1", "Eip burst-login-1"},
        set(),
    ),
    (
        "login by Session Manager has none",
        top(login=LOGIN, access=Access(ssm=True)),
        LOGIN_ROLE | {"Instance burst-login-1"},
        set(),
    ),
    (
        "an EFS with a target a zone",
        mounts(HOME),
        {
            "FileSystem burst-efs-home",
            "FileSystemPolicy burst-efs-home",
            "AccessPoint burst-efs-home",
            "MountTarget burst-efs-home-us-east-2a",
            "MountTarget burst-efs-home-us-east-2b",
            "SecurityGroup burst-efs",
        },
        set(),
    ),
    ("the site's EFS is only looked up", mounts(replace(HOME, source=SiteEfs(id="fs-1"))), set(), set()),
    (
        "a Lustre and its link",
        mounts(DATA),
        {
            "LustreFileSystem burst-lustre-data",
            "DataRepositoryAssociation burst-lustre-data-root",
            "SecurityGroup burst-lustre",
        },
        set(),
    ),
    (
        "the site's Lustre is only read",
        mounts(replace(DATA, source=SiteLustre(id="fs-1", zone="us-east-2a"))),
        {"LustreFileSystem burst-lustre-data"},
        set(),
    ),
    ("scratch is the agent's", mounts(replace(HOME, source=Nvme())), set(), set()),
    (
        "disks of the head",
        exports,
        {f"{kind} burst-{key}" for kind in ("Volume", "VolumeAttachment") for key in ("state", "nfs-apps")},
        set(),
    ),
    (
        "a second head",
        both(standby, lambda p: replace(p, storage=())),
        {
            "SubnetCidrReservation burst-10.42.32.10",
            *(f"{kind} burst-standby" for kind in ("Instance", "Role", "RolePolicy", "InstanceProfile")),
        },
        set(),
    ),
    (
        "no placement",
        pools(lambda found: (replace(found[0], placement=False),)),
        set(),
        {"PlacementGroup burst-h200-us-east-2a", "PlacementGroup burst-h200-us-east-2b"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "more", "less"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_declares(change: Change, more: set[str], less: set[str], plain: set[str]) -> None:
    found = {name for name in names(declared(change)) if not name.startswith(RULES)}
    had = {name for name in plain if not name.startswith(RULES)}
    assert (found - had, had - found) == (more, less)


def test_zone_without_a_nat_gateway_uses_the_first_one() -> None:
    routes = of(declared(top()), "Route")
    assert {n: r.get("natGatewayId") for n, r in routes.items() if "nat" in n} == {
        "burst-nat-us-east-2a": "natGateway-burst-nat-us-east-2a",
        "burst-nat-us-east-2b": "natGateway-burst-nat-us-east-2a",
    }


def test_no_subnet_assigns_public_addresses(everything: tuple[Declared, ...]) -> None:
    assert {s["mapPublicIpOnLaunch"] for s in of(everything, "Subnet").values()} == {False}


def test_login_is_public_only_if_ssh_is_open() -> None:
    ssh = top(login=LOGIN, access=Access(ssh_from=("192.0.2.0/24",)))
    for change, subnet in ((ssh, "burst-public-us-east-2a"), (top(login=LOGIN), "burst-us-east-2a")):
        machine = of(declared(change), "Instance")["burst-login-1"]
        assert machine["subnetId"] == f"subnet-{subnet}"
        assert machine["vpcSecurityGroupIds"] == ["securityGroup-burst-login"]


def test_each_kind_of_machine_has_its_own_role(everything: tuple[Declared, ...]) -> None:
    machines = {**of(everything, "Instance"), **of(declared(standby), "Instance")}
    profiles = {name: m["iamInstanceProfile"] for name, m in machines.items()}
    assert {n: p.removeprefix("name-of-burst-") for n, p in profiles.items()} == {
        "burst-head": "head",
        "burst-login-1": "login",
        "burst-standby": "standby",
    }


def test_head_may_create_fleets_only_for_sources_with_several_machines() -> None:
    """The daemon uses a fleet only to choose between machine types. Several network cards need no fleet (T31)."""
    plan = a_plan(("p5en.48xlarge, p5e.48xlarge", "p5en.48xlarge"))
    assert len(plan.pools[0].templates[0].interfaces) > 1
    assert "CreateFleet" not in of(declared_of(plan), "RolePolicy")["burst-head"]["policy"]
    assert "CreateFleet" in of(declared_of(a_plan()), "RolePolicy")["burst-head"]["policy"]


def test_all_roles_have_the_permission_boundary(everything: tuple[Declared, ...]) -> None:
    roles = of(everything, "Role")
    assert {role["permissionsBoundary"] for role in roles.values()} == {BOUNDARY}
    assert roles.keys() == {"burst-head", "burst-node", "burst-login", "burst-jobs"}
    assert [n for n, r in of(declared(top()), "Role").items() if "permissionsBoundary" in r] == []


def test_resources_with_data_are_encrypted(everything: tuple[Declared, ...]) -> None:
    held = {**of(everything, "Volume"), **of(everything, "FileSystem")}
    assert held.keys() == {"burst-state", "burst-nfs-apps", "burst-efs-home"}
    assert {one["encrypted"] for one in held.values()} == {True}
    roots = [m["rootBlockDevice"]["encrypted"] for m in of(everything, "Instance").values()]
    assert set(roots) == {True}


def test_lustre_has_the_values_of_the_plan(everything: tuple[Declared, ...]) -> None:
    (lustre,) = of(everything, "LustreFileSystem").values()
    assert (lustre["storageCapacity"], lustre["perUnitStorageThroughput"]) == (4800, 250)
    assert lustre["subnetIds"] == "subnet-burst-us-east-2a"
    (link,) = of(everything, "DataRepositoryAssociation").values()
    assert link["s3"] == {
        "autoImportPolicy": {"events": ["NEW"]},
        "autoExportPolicy": {"events": ["CHANGED"]},
    }
    assert link["dataRepositoryPath"] == "s3://example-data"


def test_t29_interfaces_of_a_template_equal_the_plan() -> None:
    (pool,) = a_plan().pools
    made = of(declared(top()), "LaunchTemplate")["burst-h200-spot-p5en.48xlarge"]
    assert "vpcSecurityGroupIds" not in made, "refused beside interfaces (T31)"
    seen = [(i["networkCardIndex"], i["deviceIndex"], i["interfaceType"]) for i in made["networkInterfaces"]]
    assert seen == [(i.card, i.device, i.kind.value) for i in pool.templates[0].interfaces]
    groups = {tuple(i["securityGroups"]) for i in made["networkInterfaces"]}
    assert groups == {("securityGroup-burst-node",)}


def test_template_without_interfaces_has_a_security_group() -> None:
    plain = pools(
        lambda found: (
            replace(found[0], templates=tuple(replace(t, interfaces=()) for t in found[0].templates)),
        )
    )
    for made in of(declared(plain), "LaunchTemplate").values():
        assert made["vpcSecurityGroupIds"] == ["securityGroup-burst-node"]
        assert "networkInterfaces" not in made


def test_root_volume_has_the_size_of_the_plan() -> None:
    wide = pools(
        lambda found: (
            replace(found[0], templates=tuple(replace(t, root_gib=250) for t in found[0].templates)),
        )
    )
    made = of(declared(wide), "LaunchTemplate").values()
    assert {t["blockDeviceMappings"][0]["ebs"]["volumeSize"] for t in made} == {250}


def test_pool_can_have_its_own_image() -> None:
    found = declared(own_image)
    made = of(found, "LaunchTemplate").values()
    assert {t["imageId"] for t in made} == {"ami-0123456789abcdef0"}
    assert of(found, "Instance")["burst-head"]["ami"] == "ami-1"
    assert "image/ami-0123456789abcdef0" in of(found, "RolePolicy")["burst-head"]["policy"]


def test_image_by_id_has_no_owner_check() -> None:
    asked = [r.inputs for r in declared(own_image) if r.type.endswith(":getAmi")]
    assert [a.get("owners") for a in asked if a["filters"][0]["name"] == "image-id"] == [None]
    assert [a.get("owners") for a in asked if a["filters"][0]["name"] == "name"] == [["self"]]


@pytest.mark.parametrize(
    ("market", "groups"),
    [(Market.SPOT, 2), (Market.ON_DEMAND, 2), (Market.RESERVATION, 0), (Market.CAPACITY_BLOCK, 0)],
)
def test_t27_prepaid_capacity_has_no_placement_group(market: Market, groups: int) -> None:
    (pool,) = a_plan().pools
    reservation = "cr-0123456789abcdef0" if market.is_reserved else None
    sources = tuple(replace(s, market=market, reservation=reservation) for s in pool.sources)
    bought = replace(pool, sources=sources, placement=True)
    assert len(placement_zones(bought)) == groups


def test_all_resources_have_the_tags_of_the_site(everything: tuple[Declared, ...]) -> None:
    for template in of(everything, "LaunchTemplate").values():
        for part in template["tagSpecifications"]:
            assert part["tags"]["team"] == "research"
            assert part["tags"]["gpucluster:pool"] == "h200"
    for machine in of(everything, "Instance").values():
        # the provider adds its default tags to the root volume; a repeated one would be a difference for ever (T17)
        assert "volumeTags" not in machine
        assert machine["rootBlockDevice"]["tags"] == machine["tags"]
        assert machine["rootBlockDevice"]["tags"].keys() == {"Name", "gpucluster:role"}
    assert '"team": "research"' in of(everything, "aws")["aws"]["defaultTags"]


def test_tags_of_the_site_do_not_replace_ours() -> None:
    found = declared(aws(tags=(("gpucluster:cluster", "other"),)))
    tags = of(found, "LaunchTemplate")["burst-h200-spot-p5en.48xlarge"]["tagSpecifications"][0]["tags"]
    assert tags["gpucluster:cluster"] == "burst"


def test_budget_filters_by_cluster_tag_and_notifies_at_both_amounts(everything: tuple[Declared, ...]) -> None:
    (budget,) = of(everything, "Budget").values()
    assert (budget["limitAmount"], budget["limitUnit"]) == ("250000.0", "USD")
    (cost,) = budget["costFilters"]
    assert cost == {"name": "TagKeyValue", "values": ["user:gpucluster:cluster$burst"]}
    assert [n["threshold"] for n in budget["notifications"]] == [200_000, 250_000]


def test_budget_without_recipients_has_no_notifications() -> None:
    budget = research().budget
    assert budget is not None
    quiet = replace(budget, notify=())
    (budget,) = of(declared(top(budget=quiet)), "Budget").values()
    assert not budget.get("notifications")


@pytest.mark.parametrize(
    ("micro", "text"), [(250_000_000_000, "250000.0"), (12_500_000, "12.5"), (1, "0.000001"), (0, "0.0")]
)
def test_dollars(micro: int, text: str) -> None:
    assert dollars(micro) == text


def test_volumes_of_a_head_have_stable_unique_device_names() -> None:
    keys = [f"nfs-{number}" for number in range(len(DEVICES))]
    assert len(set(device_names(keys).values())) == len(DEVICES)
    few = device_names([STATE.key, APPS.key])
    assert device_names([STATE.key])[STATE.key] == few[STATE.key]
    assert device_names([APPS.key, STATE.key]) == few


def test_head_is_stopped_before_a_volume_is_detached() -> None:
    made = of(declared(head(volumes=(STATE,))), "VolumeAttachment")["burst-state"]
    assert made["stopInstanceBeforeDetaching"] is True


def test_bindings_have_file_systems_and_groups(everything: tuple[Declared, ...]) -> None:
    (bundle,) = [r for r in everything if r.type.endswith("BucketObjectv2")]
    found = there_bindings(bundle)
    assert found.file_systems["/home"].access_point == "accessPoint-burst-efs-home"
    assert found.file_systems["/data"].mount_name == "mountName-of-burst-lustre-data"
    assert found.volumes == {"state": "volume-burst-state", "nfs-apps": "volume-burst-nfs-apps"}
    assert found.placement_groups.keys() == {"h200/us-east-2a", "h200/us-east-2b"}
    assert found.groups == {"node": "securityGroup-burst-node"}
    assert found.account == ACCOUNT


def there_bindings(bundle: Declared) -> Any:
    import base64

    from gpucluster.artifacts import unpack
    from gpucluster.plan import codec
    from gpucluster.plan.model import Bindings

    files = {a.path: a.content for a in unpack(base64.b64decode(bundle.inputs["contentBase64"]))}
    return codec.loads(Bindings, files["bindings.json"])

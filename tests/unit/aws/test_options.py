"""Resource options, from the offline planner: protection, dependencies, timeouts, aliases."""

import pytest
from support.aws_plans import both, exports, mounts, network, research, site_vpc, standby
from support.builders import a_plan
from support.planned import names_of, one, word

from gpucluster.aws.lustre import PATIENCE
from gpucluster.engine.offline import planner
from gpucluster.engine.offline.model import Planned
from gpucluster.plan import names
from gpucluster.plan.model import Mount, SiteEfs, SiteLustre

PROGRAM = "gpucluster.aws.program:declare"
FORMER = "urn:pulumi:burst::gpucluster::gpucluster:aws:Storage"


@pytest.fixture(scope="module")
def planned() -> Planned:
    return planner.run(PROGRAM, standby(research()))


def test_resources_with_data_and_the_network_of_lustre_are_protected(planned: Planned) -> None:
    assert {word(r) for r in planned.resources if r.protect} == {
        "FileSystem burst-efs-home",
        "FileSystem burst-efs-state",
        "LustreFileSystem burst-lustre-data",
        "Volume burst-nfs-apps",
        "Volume burst-state",
        "SecurityGroup burst-lustre",
        "Subnet burst-us-east-2a",
        "Vpc burst",
    }


def test_old_versions_of_what_is_written_all_the_time_expire(planned: Planned) -> None:
    """The control object is written each few seconds, and no version of it ever expired."""
    lifecycle = one(planned, "BucketLifecycleConfiguration burst")
    rules = lifecycle.properties["rules"]
    assert {rule["filter"]["prefix"] for rule in rules} == {
        names.CONTROL_KEY,
        names.ORDERS_KEY,
        names.STATUS_KEY,
    }
    assert {rule["noncurrentVersionExpiration"]["noncurrentDays"] for rule in rules} == {30}
    assert all(rule.keys() == {"id", "status", "filter", "noncurrentVersionExpiration"} for rule in rules)
    assert "BucketVersioning burst" in names_of(lifecycle.dependencies)


def test_no_resource_is_retained_on_delete(planned: Planned) -> None:
    assert [word(r) for r in planned.resources if r.retain_on_delete] == []


def test_t45_lustre_depends_on_its_security_group_rules(planned: Planned) -> None:
    before = names_of(one(planned, "LustreFileSystem burst-lustre-data").dependencies)
    rules = {word(r) for r in planned.resources if r.name.startswith("burst-lustre-") and "Rule" in r.type}
    assert len(rules) == 9
    assert rules <= before


def test_lustre_has_a_long_create_timeout(planned: Planned) -> None:
    assert (PATIENCE.create, PATIENCE.delete) == ("90m", "60m")
    for name in ("LustreFileSystem burst-lustre-data", "DataRepositoryAssociation burst-lustre-data-root"):
        assert one(planned, name).timeouts.create == "90m"


def test_resources_that_collide_are_deleted_before_replacement(planned: Planned) -> None:
    first = {word(r) for r in planned.resources if r.delete_before_replace}
    assert first == {
        "DataRepositoryAssociation burst-lustre-data-root",
        "Instance burst-head",
        "Instance burst-standby",
        *(f"MountTarget burst-efs-{fs}-us-east-2{zone}" for fs in ("home", "state") for zone in "ab"),
        "NatGateway burst-nat-us-east-2a",
        "VolumeAttachment burst-nfs-apps",
        "VolumeAttachment burst-state",
    }


def test_bucket_and_secret_have_aliases(planned: Planned) -> None:
    """Both were children of one component before. Without the aliases Pulumi would replace bucket and secret."""
    assert f"{FORMER}$aws:s3/bucket:Bucket::burst" in one(planned, "Bucket burst").aliases
    secret = one(planned, "Secret burst-munge")
    assert f"{FORMER}$aws:secretsmanager/secret:Secret::burst-munge" in secret.aliases


def test_machines_depend_on_the_resources_that_they_read(planned: Planned) -> None:
    for machine in ("head", "standby", "login-1"):
        before = names_of(one(planned, f"Instance burst-{machine}").dependencies)
        assert {
            "BucketObjectv2 burst-bundle",
            "LustreFileSystem burst-lustre-data",
            "AccessPoint burst-efs-home",
            "Route burst-nat-us-east-2a",
            "VpcEndpoint burst-s3",
        } <= before
        assert "MountTarget burst-efs-home-us-east-2b" in before


def test_nat_gateway_depends_on_the_internet_route(planned: Planned) -> None:
    before = names_of(one(planned, "NatGateway burst-nat-us-east-2a").dependencies)
    assert {"Route burst-internet", "RouteTableAssociation burst-public-us-east-2a"} <= before


def test_every_resource_has_a_component_as_parent(planned: Planned) -> None:
    assert [
        word(r) for r in planned.resources if r.custom and r.parent is None and "provider" not in r.type
    ] == []


def test_program_exports_addresses_and_bindings(planned: Planned) -> None:
    assert planned.outputs.keys() == {"bindings", "bucket", "head", "login"}
    assert planned.outputs["login"].keys() == {"burst-login-1"}  # type: ignore[union-attr]


def test_existing_network_and_file_systems_are_only_looked_up() -> None:
    own = both(
        site_vpc,
        network(endpoints=("ec2",)),
        exports,
        mounts(
            Mount(path="/home", source=SiteEfs(id="fs-1")),
            Mount(path="/data", source=SiteLustre(id="fs-2", zone="us-east-2a")),
        ),
    )(a_plan())
    planned = planner.run(PROGRAM, own)
    assert {lookup.token.rpartition(":")[2] for lookup in planned.lookups} == {
        "getAmi",
        "getCallerIdentity",
        "getFileSystem",
        "getSubnet",
        "getVpc",
        "LustreFileSystem",
    }
    assert [word(r) for r in planned.resources if r.external] == ["LustreFileSystem burst-lustre-data"]
    assert {word(r) for r in planned.resources if r.protect} == {
        "Volume burst-nfs-apps",
        "Volume burst-state",
    }

"""What only the registration shows: protection, order, patience, aliases. Seen by the offline planner, once."""

import pytest
from aws_plans import both, exports, mounts, network, research, site_vpc, standby
from builders import a_plan

from gpucluster.aws.lustre import PATIENCE
from gpucluster.engine.offline import planner
from gpucluster.engine.offline.model import Planned, Resource
from gpucluster.plan.model import Efs, Lustre, Mount

PROGRAM = "gpucluster.aws.program:declare"
FORMER = "urn:pulumi:burst::gpucluster::gpucluster:aws:Storage"


@pytest.fixture(scope="module")
def planned() -> Planned:
    return planner.run(PROGRAM, standby(research()))


def word(resource: Resource) -> str:
    return f"{resource.type.rpartition(':')[2]} {resource.name}"


def one(planned: Planned, name: str) -> Resource:
    (found,) = [r for r in planned.resources if word(r) == name and r.custom]
    return found


def names_of(urns: tuple[str, ...]) -> set[str]:
    return {f"{urn.split('::')[2].rpartition(':')[2]} {urn.split('::')[3]}" for urn in urns}


def test_what_holds_data_is_protected_and_the_network_that_a_lustre_hangs_on(planned: Planned) -> None:
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


def test_nothing_is_silently_left_behind(planned: Planned) -> None:
    assert [word(r) for r in planned.resources if r.retain_on_delete] == []


def test_t45_the_rules_of_a_lustre_are_there_before_it(planned: Planned) -> None:
    before = names_of(one(planned, "LustreFileSystem burst-lustre-data").dependencies)
    rules = {word(r) for r in planned.resources if r.name.startswith("burst-lustre-") and "Rule" in r.type}
    assert len(rules) == 9
    assert rules <= before


def test_a_large_import_has_time(planned: Planned) -> None:
    assert (PATIENCE.create, PATIENCE.delete) == ("90m", "60m")
    for name in ("LustreFileSystem burst-lustre-data", "DataRepositoryAssociation burst-lustre-data-root"):
        assert one(planned, name).timeouts.create == "90m"


def test_what_is_exclusive_goes_before_its_successor_comes(planned: Planned) -> None:
    first = {word(r) for r in planned.resources if r.delete_before_replace}
    assert first == {
        "Instance burst-head",
        "Instance burst-standby",
        *(f"MountTarget burst-efs-{fs}-us-east-2{zone}" for fs in ("home", "state") for zone in "ab"),
        "VolumeAttachment burst-nfs-apps",
        "VolumeAttachment burst-state",
    }


def test_bucket_and_secret_are_known_by_their_former_place(planned: Planned) -> None:
    """They were one component's; nobody's bundle, control object or key goes because of that."""
    assert f"{FORMER}$aws:s3/bucket:Bucket::burst" in one(planned, "Bucket burst").aliases
    secret = one(planned, "Secret burst-munge")
    assert f"{FORMER}$aws:secretsmanager/secret:Secret::burst-munge" in secret.aliases


def test_a_machine_boots_when_all_that_it_asks_for_is_there(planned: Planned) -> None:
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


def test_a_gateway_has_a_way_out_before_it_is_made(planned: Planned) -> None:
    before = names_of(one(planned, "NatGateway burst-nat-us-east-2a").dependencies)
    assert {"Route burst-internet", "RouteTableAssociation burst-public-us-east-2a"} <= before


def test_every_resource_stands_in_a_component(planned: Planned) -> None:
    assert [
        word(r) for r in planned.resources if r.custom and r.parent is None and "provider" not in r.type
    ] == []


def test_the_program_tells_people_and_programs_where_things_are(planned: Planned) -> None:
    assert planned.outputs.keys() == {"bindings", "bucket", "head", "login"}
    assert planned.outputs["login"].keys() == {"burst-login-1"}  # type: ignore[union-attr]


def test_a_site_s_own_network_and_file_systems_are_looked_up_and_stay_the_sites() -> None:
    own = both(
        site_vpc,
        network(endpoints=("ec2",)),
        exports,
        mounts(
            Mount(path="/home", efs=Efs(id="fs-1")),
            Mount(path="/data", lustre=Lustre(zone="us-east-2a", size_gib=0, id="fs-2")),
        ),
    )(a_plan())
    planned = planner.run(PROGRAM, own)
    assert {lookup.token.rpartition(":")[2] for lookup in planned.lookups} == {
        "getAmi",
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

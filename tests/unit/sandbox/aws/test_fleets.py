"""CreateFleet over boto3: answers that differ from RunInstances (T14), and facts that only the API front end has."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.clouds import Network, RunningCloud, code_of

from gpucluster.errors import GpuclusterError

pytestmark = pytest.mark.loopback
MACHINE = "p5.48xlarge"


def asked(network: Network, *machines: str, count: int = 1, **change: Any) -> dict[str, Any]:
    subnet = network.subnets["us-east-1a"]
    config = {
        "LaunchTemplateSpecification": {"LaunchTemplateId": network.template, "Version": "1"},
        "Overrides": [{"InstanceType": m, "SubnetId": subnet} for m in machines or (MACHINE,)],
    }
    target = {"TotalTargetCapacity": count, "DefaultTargetCapacityType": "on-demand"}
    base = {"Type": "instant", "LaunchTemplateConfigs": [config], "TargetCapacitySpecification": target}
    return {**base, **change}


def codes(answer: dict[str, Any]) -> list[str]:
    return [e["ErrorCode"] for e in answer["Errors"]]


def test_t14_fleet_without_a_version_is_refused_whole(ec2: Any, network: Network):
    fleet = asked(network)
    del fleet["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["Version"]
    assert code_of(ec2.create_fleet, **fleet) == "MissingParameter"


def test_t14_misspelt_machine_type_is_in_the_errors(ec2: Any, network: Network):
    answer = ec2.create_fleet(**asked(network, "p5.48xlargest", MACHINE))
    assert codes(answer) == ["InvalidFleetConfiguration"]
    assert [i["InstanceType"] for i in answer["Instances"]] == [MACHINE]


def test_t14_image_by_an_alias_is_refused_at_the_top(ec2: Any, network: Network):
    fleet = asked(network)
    fleet["LaunchTemplateConfigs"][0]["Overrides"][0]["ImageId"] = "resolve:ssm:/our/image"
    assert code_of(ec2.create_fleet, **fleet) == "SsmAccessDenied"


def test_t14_missing_permission_is_an_error_of_each_override(cloud: RunningCloud, network: Network):
    """agent-fleet ADR 0077: neither a top-level error nor a dry run shows it."""
    iam = cloud.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    iam.create_role(
        RoleName="fleet", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    )
    allowed = {"Effect": "Allow", "Action": "ec2:CreateFleet", "Resource": "*"}
    text = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_role_policy(RoleName="fleet", PolicyName="f", PolicyDocument=text)
    key = cloud.api.ring.session("fleet", "AROAFLEET", "i-0000000000000000a", cloud.clock.now)
    answer = cloud.client("ec2", key).create_fleet(**asked(network, MACHINE, "p5e.48xlarge"))
    assert codes(answer) == ["UnauthorizedOperation"] * 2
    assert answer["Instances"] == []


def test_t14_full_reservation_is_unfulfillable_capacity_with_its_name(
    cloud: RunningCloud, ec2: Any, network: Network
):
    held = cloud.control.reserve(MACHINE, "us-east-1a", 1)
    target = {"CapacityReservationTarget": {"CapacityReservationId": held}}
    content = {"ImageId": network.image, "InstanceType": MACHINE, "CapacityReservationSpecification": target}
    made = ec2.create_launch_template(LaunchTemplateName="held", LaunchTemplateData=content)
    fleet = asked(network)
    fleet["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"] = {
        "LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"],
        "Version": "1",
    }
    assert len(ec2.create_fleet(**fleet)["Instances"]) == 1
    (error,) = ec2.create_fleet(**fleet)["Errors"]
    assert error["ErrorCode"] == "UnfulfillableCapacity"
    assert "ReservationCapacityExceeded" in error["ErrorMessage"]


def test_t14_instances_carry_the_fleets_id_and_no_lifecycle_and_go_with_it(ec2: Any, network: Network):
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "request"}]}]
    fleet = ec2.create_fleet(**asked(network, count=2, TagSpecifications=tags))
    ids = fleet["Instances"][0]["InstanceIds"]
    found = [i for r in ec2.describe_instances(InstanceIds=ids)["Reservations"] for i in r["Instances"]]
    seen = [{t["Key"]: t["Value"] for t in i["Tags"]} for i in found]
    assert [(s["aws:ec2:fleet-id"], s["from"]) for s in seen] == [(fleet["FleetId"], "request")] * 2
    assert [i for i in found if "InstanceLifecycle" in i] == []
    kept = ec2.delete_fleets(FleetIds=[fleet["FleetId"]], TerminateInstances=False)
    assert kept["UnsuccessfulFleetDeletions"][0]["Error"]["Code"] == "NoTerminateInstancesNotSupported"
    ec2.delete_fleets(FleetIds=[fleet["FleetId"]], TerminateInstances=True)
    found = [i for r in ec2.describe_instances(InstanceIds=ids)["Reservations"] for i in r["Instances"]]
    assert {i["State"]["Name"] for i in found} == {"shutting-down"}


def test_t13_minimum_counts_only_for_one_type_or_one_zone(cloud: RunningCloud, ec2: Any, network: Network):
    cloud.model.set_capacity(free=1)
    loose = asked(network, count=4, OnDemandOptions={"MinTargetCapacity": 4})
    assert len(ec2.create_fleet(**loose)["Instances"][0]["InstanceIds"]) == 1
    cloud.model.set_capacity(free=1)
    strict = {"MinTargetCapacity": 4, "SingleAvailabilityZone": True}
    assert ec2.create_fleet(**asked(network, count=4, OnDemandOptions=strict))["Instances"] == []
    assert (
        code_of(ec2.create_fleet, **asked(network, OnDemandOptions={"MinTargetCapacity": 1001}))
        == "InvalidParameterValue"
    )


def test_t13_at_most_fifty_configs(ec2: Any, network: Network):
    fleet = asked(network)
    fleet["LaunchTemplateConfigs"] *= 51
    assert code_of(ec2.create_fleet, **fleet) == "InvalidParameterValue"


def test_t15_latest_is_resolved_at_launch_and_may_be_another_at_the_next(
    cloud: RunningCloud, ec2: Any, network: Network
):
    content = {"ImageId": network.image, "InstanceType": "p5e.48xlarge"}
    ec2.create_launch_template_version(LaunchTemplateId=network.template, LaunchTemplateData=content)
    cloud.control.switch(moving_latest=True)
    latest = {"LaunchTemplateId": network.template, "Version": "$Latest"}
    place = {"SubnetId": network.subnets["us-east-1a"], "MinCount": 1, "MaxCount": 1}
    types = [
        ec2.run_instances(LaunchTemplate=latest, **place)["Instances"][0]["InstanceType"] for _ in range(2)
    ]
    assert types == [MACHINE, "p5e.48xlarge"]


def test_t16_template_has_its_own_code_for_too_much_user_data(ec2: Any):
    import base64

    for size, fits in ((16384, True), (16385, False)):
        content = {"UserData": base64.b64encode(b"x" * size).decode()}
        named = {"LaunchTemplateName": f"t16-{size}", "LaunchTemplateData": content}
        if fits:
            ec2.create_launch_template(**named)
        else:
            assert code_of(ec2.create_launch_template, **named) == "InvalidUserData.Malformed"


def test_t25_reservation_is_made_found_and_cancelled(ec2: Any, network: Network):
    made = ec2.create_capacity_reservation(
        InstanceType=MACHINE, InstancePlatform="Linux/UNIX", AvailabilityZone="us-east-1a", InstanceCount=1
    )["CapacityReservation"]
    (found,) = ec2.describe_capacity_reservations(CapacityReservationIds=[made["CapacityReservationId"]])[
        "CapacityReservations"
    ]
    assert (found["State"], found["AvailableInstanceCount"]) == ("active", 1)
    unknown = {"CapacityReservationIds": ["cr-0000000000000000f"]}
    code = code_of(ec2.describe_capacity_reservations, **unknown)
    assert code == "InvalidCapacityReservationId.NotFound"
    ec2.cancel_capacity_reservation(CapacityReservationId=made["CapacityReservationId"])


def test_t25_reserved_capacity_only_if_requested(cloud: RunningCloud, ec2: Any, network: Network):
    def launch(preference: str) -> Any:
        return ec2.run_instances(
            LaunchTemplate={"LaunchTemplateId": network.template, "Version": "1"},
            SubnetId=network.subnets["us-east-1a"],
            CapacityReservationSpecification={"CapacityReservationPreference": preference},
            MinCount=1,
            MaxCount=1,
        )["Instances"][0]

    held = cloud.control.reserve(MACHINE, "us-east-1a", 1, open=True)
    assert "CapacityReservationId" not in launch("none")
    assert launch("capacity-reservations-only")["CapacityReservationId"] == held
    with pytest.raises(ClientError, match="ReservationCapacityExceeded"):
        launch("capacity-reservations-only")
    assert "CapacityReservationId" not in launch("open"), "in silence an ordinary one"


def test_t32_one_attribute_of_a_vpc_a_call(ec2: Any, network: Network):
    both = {"EnableDnsSupport": {"Value": True}, "EnableDnsHostnames": {"Value": True}}
    with pytest.raises(ClientError, match="multiple attribute types"):
        ec2.modify_vpc_attribute(VpcId=network.vpc, **both)


def test_t35_scheduled_events_are_listed_and_only_some_can_move(
    cloud: RunningCloud, ec2: Any, network: Network
):
    fleet = ec2.create_fleet(**asked(network))
    (one,) = fleet["Instances"][0]["InstanceIds"]
    cloud.clock.move(2)
    fixed = cloud.control.maintain(one, after_s=7200)
    movable = cloud.control.maintain(one, code="system-reboot", after_s=7200, deadline_s=86400)
    cloud.control.maintain(one, completed=True, words="done")
    (status,) = ec2.describe_instance_status(InstanceIds=[one])["InstanceStatuses"]
    texts = {e["InstanceEventId"]: e["Description"] for e in status["Events"]}
    assert len(texts) == 3
    assert [t for t in texts.values() if t.startswith("[Completed]")] == ["[Completed] done"]

    def move(event: str, in_s: float) -> Any:
        import datetime

        to = datetime.datetime.fromtimestamp(cloud.clock.now + in_s, datetime.UTC)
        return ec2.modify_instance_event_start_time(InstanceId=one, InstanceEventId=event, NotBefore=to)

    with pytest.raises(ClientError, match="InstanceEventStartTimeCannotChange"):
        move(fixed, 10_000)
    with pytest.raises(ClientError, match="InvalidInstanceEventStartTime"):
        move(movable, 1800)
    assert move(movable, 10_000)["Event"]["InstanceEventId"] == movable


def test_t38_secrets_name_is_taken_until_it_is_gone(cloud: RunningCloud):
    secrets = cloud.client("secretsmanager")
    secrets.create_secret(Name="t38")
    secrets.delete_secret(SecretId="t38", RecoveryWindowInDays=7)
    with pytest.raises(ClientError, match=r"InvalidRequestException.*scheduled for deletion"):
        secrets.create_secret(Name="t38")
    secrets.create_secret(Name="t38-now")
    secrets.delete_secret(SecretId="t38-now", ForceDeleteWithoutRecovery=True)
    with pytest.raises(ClientError, match=r"InvalidRequestException.*scheduled for deletion"):
        secrets.create_secret(Name="t38-now")
    cloud.clock.move(11.0)
    secrets.create_secret(Name="t38-now")


def test_fault_injections_are_accepted_and_wrong_ones_refused(
    cloud: RunningCloud, ec2: Any, network: Network
):
    control = cloud.control
    control.set_quota("P", 100)
    control.set_spot_price(MACHINE, "us-east-1a", 5_000_000)
    control.switch(
        lag={"id_s": 4, "address_s": 2}, dead_token="refuse", failing_zones=["us-east-1b"], page_size=5
    )
    control.switch(profile_lag_s=60, images_gone={network.image: "InvalidAMIID.NotFound"})
    assert codes(ec2.create_fleet(**asked(network))) == ["InvalidAMIID.NotFound"]
    for wrong in (
        lambda: control.switch(nothing=1),
        lambda: control.switch(dead_token="maybe"),
        lambda: control.switch(lag=3),
        lambda: control.interrupt("i-0123456789abcdef0"),
        lambda: control.rebalance("i-0123456789abcdef0", silent=["post"]),
        lambda: control.set_quota("P", 1, market="nowhere"),
        lambda: control.reserve(MACHINE, "us-east-1a", "many"),  # type: ignore[arg-type]
    ):
        with pytest.raises(GpuclusterError, match="the sandbox refused"):
            wrong()
    control.clear()
    assert len(ec2.create_fleet(**asked(network))["Instances"]) == 1

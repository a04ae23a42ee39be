"""Launch templates. Each change makes a new version, and no launch uses `$Latest`."""

from collections.abc import Mapping

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, only
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    Property,
    ResourceType,
    computed,
    moving,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import (
    FLAG,
    FLAG_AS_TEXT,
    NUMBER,
    REFUSED,
    TAGS,
    TEXT,
    TEXTS,
    Field,
    Many,
    Record,
)

Seen = Mapping[str, Value] | None

METADATA = Record(
    {
        "httpEndpoint": Field("HttpEndpoint", TEXT, default="enabled"),
        "httpTokens": Field("HttpTokens", TEXT, from_cloud=True),
        "httpPutResponseHopLimit": Field("HttpPutResponseHopLimit", NUMBER, from_cloud=True),
        "httpProtocolIpv6": Field("HttpProtocolIpv6", TEXT, default="disabled"),
        "instanceMetadataTags": Field("InstanceMetadataTags", TEXT, default="disabled"),
    }
)

_SPOT = Record(
    {
        "spotInstanceType": Field("SpotInstanceType", TEXT),
        "instanceInterruptionBehavior": Field("InstanceInterruptionBehavior", TEXT),
        "maxPrice": Field("MaxPrice", TEXT),
        "validUntil": Field("ValidUntil", TEXT),
        "blockDurationMinutes": Field("BlockDurationMinutes", NUMBER),
    }
)
_RESERVATION = Record(
    {
        "capacityReservationPreference": Field("CapacityReservationPreference", TEXT),
        "capacityReservationTarget": Field(
            "CapacityReservationTarget",
            Record(
                {
                    "capacityReservationId": Field("CapacityReservationId", TEXT),
                    "capacityReservationResourceGroupArn": Field("CapacityReservationResourceGroupArn", TEXT),
                }
            ),
        ),
    }
)
_EBS = Record(
    {
        "encrypted": Field("Encrypted", FLAG_AS_TEXT),
        "deleteOnTermination": Field("DeleteOnTermination", FLAG_AS_TEXT),
        "volumeSize": Field("VolumeSize", NUMBER),
        "volumeType": Field("VolumeType", TEXT),
        "kmsKeyId": Field("KmsKeyId", TEXT),
        "snapshotId": Field("SnapshotId", TEXT),
        "iops": Field("Iops", NUMBER),
        "throughput": Field("Throughput", NUMBER),
    }
)
_INTERFACE = Record(
    {
        "deviceIndex": Field("DeviceIndex", NUMBER, default=0),
        "networkCardIndex": Field("NetworkCardIndex", NUMBER, default=0),
        "interfaceType": Field("InterfaceType", TEXT, default="interface"),
        "securityGroups": Field("Groups", TEXTS),
        "subnetId": Field("SubnetId", TEXT),
        "deleteOnTermination": Field("DeleteOnTermination", FLAG_AS_TEXT, from_cloud=True),
        "associatePublicIpAddress": Field("AssociatePublicIpAddress", FLAG_AS_TEXT),
        "description": Field("Description", TEXT),
    }
)
_PLACEMENT = Record(
    {
        "groupName": Field("GroupName", TEXT),
        "availabilityZone": Field("AvailabilityZone", TEXT),
        "tenancy": Field("Tenancy", TEXT),
        "partitionNumber": Field("PartitionNumber", NUMBER),
    }
)
# The fields of launch template data. Unsupported fields are listed, too, so that drift in them is a difference.
_TEMPLATE_DATA: Mapping[str, Property] = {
    "imageId": updates("ImageId"),
    "instanceType": updates("InstanceType"),
    "userData": updates("UserData"),
    "keyName": updates("KeyName"),
    "ebsOptimized": updates("EbsOptimized", FLAG_AS_TEXT, from_cloud=True),
    "vpcSecurityGroupIds": updates("SecurityGroupIds", TEXTS),
    "instanceInitiatedShutdownBehavior": updates("InstanceInitiatedShutdownBehavior"),
    "disableApiTermination": updates("DisableApiTermination", FLAG, from_cloud=True),
    "iamInstanceProfile": updates(
        "IamInstanceProfile", Record({"arn": Field("Arn", TEXT), "name": Field("Name", TEXT)})
    ),
    "metadataOptions": updates("MetadataOptions", METADATA),
    "instanceMarketOptions": updates(
        "InstanceMarketOptions",
        Record({"marketType": Field("MarketType", TEXT), "spotOptions": Field("SpotOptions", _SPOT)}),
    ),
    "capacityReservationSpecification": updates("CapacityReservationSpecification", _RESERVATION),
    "blockDeviceMappings": updates(
        "BlockDeviceMappings",
        Many(Record({"deviceName": Field("DeviceName", TEXT), "ebs": Field("Ebs", _EBS)})),
    ),
    "networkInterfaces": updates("NetworkInterfaces", Many(_INTERFACE, ordered=True)),
    "placement": updates("Placement", _PLACEMENT),
    "tagSpecifications": updates(
        "TagSpecifications",
        Many(Record({"resourceType": Field("ResourceType", TEXT), "tags": Field("Tags", TAGS)})),
    ),
    **{
        name: updates(name[0].upper() + name[1:], REFUSED)
        for name in (
            "cpuOptions",
            "creditSpecification",
            "disableApiStop",
            "enclaveOptions",
            "hibernationOptions",
            "instanceRequirements",
            "kernelId",
            "licenseSpecifications",
            "maintenanceOptions",
            "monitoring",
            "privateDnsNameOptions",
            "ramDiskId",
        )
    },
}


def _create_template(call: Call) -> str:
    answer = call.cloud.ec2.create_launch_template(
        LaunchTemplateName=call.inputs["name"],
        LaunchTemplateData=call.api(*_TEMPLATE_DATA),
        **_version_text(call),
        **call.tag_specifications("launch-template"),
    )
    return answer["LaunchTemplate"]["LaunchTemplateId"]


def _read_template(cloud: Cloud, identifier: str, _: Values) -> Seen:
    named = {"LaunchTemplateIds": [identifier]}
    seen = only(cloud.ec2.describe_launch_templates(**named)["LaunchTemplates"])
    if seen is None:
        return None
    versions = cloud.ec2.describe_launch_template_versions(LaunchTemplateId=identifier, Versions=["$Latest"])
    latest = versions["LaunchTemplateVersions"][0]
    return {
        **latest["LaunchTemplateData"],
        **seen,
        "VersionDescription": latest.get("VersionDescription"),
        "LatestVersionNumber": int(seen["LatestVersionNumber"]),
        "DefaultVersionNumber": int(seen["DefaultVersionNumber"]),
        "Arn": cloud.ec2_arn("launch-template", identifier),
    }


def _update_template(call: Call, changed: frozenset[str]) -> None:
    """Create a complete new version. The default version changes only by a separate call (T15)."""
    if changed & (_TEMPLATE_DATA.keys() | {"description"}):
        answer = call.cloud.ec2.create_launch_template_version(
            LaunchTemplateId=call.id, LaunchTemplateData=call.api(*_TEMPLATE_DATA), **_version_text(call)
        )
        if call.inputs.get("updateDefaultVersion"):
            version = str(answer["LaunchTemplateVersion"]["VersionNumber"])
            call.cloud.ec2.modify_launch_template(LaunchTemplateId=call.id, DefaultVersion=version)
    retag_ec2(call)


def _version_text(call: Call) -> dict[str, str]:
    return {"VersionDescription": call.inputs["description"]} if call.inputs.get("description") else {}


LAUNCH_TEMPLATE = ResourceType(
    name="aws:ec2/launchTemplate:LaunchTemplate",
    properties={
        "name": replaces("LaunchTemplateName"),
        "description": updates("VersionDescription"),
        "updateDefaultVersion": updates(None, FLAG),
        **_TEMPLATE_DATA,
        "arn": computed("Arn"),
        "latestVersion": moving("LatestVersionNumber", NUMBER),
        "defaultVersion": moving("DefaultVersionNumber", NUMBER),
        **TAG_PROPERTIES,
    },
    create=_create_template,
    read=_read_template,
    update=_update_template,
    delete=lambda call: call.cloud.ec2.delete_launch_template(LaunchTemplateId=call.id),
    autoname=Autoname("name", 128),
)

ROWS = (LAUNCH_TEMPLATE,)

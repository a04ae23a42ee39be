"""The calls of AWS that Karpenter makes, with the names and tags of its version 1.14 (karpenter.sh/docs)."""

import itertools
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

log = logging.getLogger(__name__)

Object = dict[str, Any]
TagList = list[Mapping[str, str]]
POOL_LABEL, CLAIM_TAG = "karpenter.sh/nodepool", "karpenter.sh/nodeclaim"


@dataclass(frozen=True, slots=True)
class Offering:
    """One way to launch a node of a pool."""

    machine: str
    market: str
    zone: str


class KarpenterEc2:
    """EC2 for the nodes of one cluster; `ec2` is a client with the controller's role."""

    def __init__(self, ec2: Any, cluster: str) -> None:
        self._ec2, self._cluster = ec2, cluster

    def problem(self, spec: Mapping[str, Any]) -> str:
        """Return what keeps a NodeClass from being ready; empty if nothing does."""
        try:
            if not self.subnets(spec):
                return "SubnetSelector did not match any Subnets"
            if not self.groups(spec):
                return "SecurityGroupSelector did not match any SecurityGroups"
            self._image(spec)
        except ClientError as error:
            return str(error)
        return ""

    def terminate(self, instance: str) -> None:
        """End an instance."""
        self._ec2.terminate_instances(InstanceIds=[instance])

    def subnets(self, spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The subnets that a NodeClass selects by tags."""
        found = [
            self._ec2.describe_subnets(Filters=_filters(one))["Subnets"]
            for one in spec["subnetSelectorTerms"]
        ]
        return list(itertools.chain(*found))

    def groups(self, spec: Mapping[str, Any]) -> list[str]:
        """The ids of the security groups that a NodeClass selects by tags."""
        terms = spec["securityGroupSelectorTerms"]
        found = [self._ec2.describe_security_groups(Filters=_filters(one))["SecurityGroups"] for one in terms]
        return [one["GroupId"] for one in itertools.chain(*found)]

    def instances(self) -> dict[str, Mapping[str, Any]]:
        """Our instances by the name of their claim."""
        wanted = [{"Name": f"tag:kubernetes.io/cluster/{self._cluster}", "Values": ["owned"]},
                  {"Name": "tag-key", "Values": [CLAIM_TAG]}]  # fmt: skip
        pages = self._ec2.describe_instances(Filters=wanted)["Reservations"]
        found = [one for page in pages for one in page["Instances"]]
        return {tag["Value"]: one for one in found for tag in one.get("Tags", ()) if tag["Key"] == CLAIM_TAG}

    def _tags(self, pool: Object, node_class: Object) -> list[Mapping[str, str]]:
        own: Mapping[str, str] = node_class["spec"].get("tags") or {}
        tags = {
            **own,
            f"kubernetes.io/cluster/{self._cluster}": "owned",
            POOL_LABEL: pool["metadata"]["name"],
            "karpenter.k8s.aws/ec2nodeclass": node_class["metadata"]["name"],
            "eks:eks-cluster-name": self._cluster,
        }
        return [{"Key": k, "Value": v} for k, v in sorted(tags.items())]

    def launch(
        self, name: str, pool: Object, node_class: Object, offering: Offering
    ) -> Mapping[str, str] | None:
        """Launch one instance by a template and a fleet of its own; None without capacity."""
        spec, tags = node_class["spec"], self._tags(pool, node_class)
        subnet = next((one for one in self.subnets(spec) if one["AvailabilityZone"] == offering.zone), None)
        if subnet is None:
            return None
        claimed = [*tags, {"Key": CLAIM_TAG, "Value": name}, {"Key": "Name", "Value": name}]
        template = self._template(spec, tags, claimed, spot=offering.market == "spot")
        try:
            answer = self._fleet(template, str(subnet["SubnetId"]), offering, claimed)
        finally:
            self._ec2.delete_launch_template(LaunchTemplateId=template)
        for error in answer.get("Errors", ()):
            log.warning("%s: %s %s", name, error["ErrorCode"], error.get("ErrorMessage", ""))
        made = [one for row in answer.get("Instances", ()) for one in row["InstanceIds"]]
        return {"id": made[0]} if made else None

    def _template(self, spec: Mapping[str, Any], tags: TagList, claimed: TagList, *, spot: bool) -> str:
        kinds = ("network-interface", *(["spot-instances-request"] if spot else []))
        metadata = spec["metadataOptions"]
        content = {
            "ImageId": self._image(spec),
            "IamInstanceProfile": {"Name": spec["instanceProfile"]},
            "SecurityGroupIds": self.groups(spec),
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpTokens": metadata["httpTokens"],
                "HttpPutResponseHopLimit": metadata["httpPutResponseHopLimit"],
            },
            "BlockDeviceMappings": [_disk(one) for one in spec["blockDeviceMappings"]],
            "TagSpecifications": [{"ResourceType": kind, "Tags": claimed} for kind in kinds],
        }
        made = self._ec2.create_launch_template(
            LaunchTemplateName=f"karpenter.k8s.aws/{secrets.token_hex(8)}",
            LaunchTemplateData=content,
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def _fleet(self, template: str, subnet: str, offering: Offering, claimed: TagList) -> Mapping[str, Any]:
        zone = {"SubnetId": subnet, "AvailabilityZone": offering.zone}
        return self._ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "$Latest"},
                    "Overrides": [{"InstanceType": offering.machine, **zone}],
                }
            ],
            TargetCapacitySpecification={
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": offering.market,
            },
            TagSpecifications=[
                {"ResourceType": kind, "Tags": claimed} for kind in ("instance", "volume", "fleet")
            ],
        )

    def _image(self, spec: Mapping[str, Any]) -> str:
        """The image of an alias such as `al2023@v20260903`. The sandbox has one for each, of Amazon."""
        alias = str(spec["amiSelectorTerms"][0]["alias"])
        family, _, release = alias.partition("@")
        named = [{"Name": "name", "Values": [f"amazon-eks-node-{family}-*-{release}"]}]
        found = self._ec2.describe_images(Owners=["amazon"], Filters=named)["Images"]
        if not found:
            raise ClientError(
                {"Error": {"Code": "AMINotFound", "Message": f"no image for {alias}"}}, "DescribeImages"
            )
        return str(found[0]["ImageId"])


def _disk(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """A block device of a NodeClass as EC2 has it."""
    ebs = mapping["ebs"]
    values = {
        "VolumeType": ebs["volumeType"],
        "VolumeSize": int(str(ebs["volumeSize"]).removesuffix("Gi")),
        "Encrypted": ebs["encrypted"],
        "DeleteOnTermination": ebs["deleteOnTermination"],
        "KmsKeyId": ebs.get("kmsKeyID"),
    }
    return {
        "DeviceName": mapping["deviceName"],
        "Ebs": {key: value for key, value in values.items() if value is not None},
    }


def _filters(term: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{"Name": f"tag:{k}", "Values": [v]} for k, v in sorted(term["tags"].items())]

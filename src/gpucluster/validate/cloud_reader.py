"""Answer the queries of checks about the cloud: lists of EC2, and single stores. It only reads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpucluster.cloud.limits import in_filters
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names
from gpucluster.text import short
from gpucluster.validate.eks_reader import read_eks
from gpucluster.validate.network_reader import read_endpoints, read_network
from gpucluster.validate.store_reader import STORES, read_roles, read_shutdowns, read_templates

Filters = list[dict[str, Any]]
_LISTS = {  # word of a query -> operation, list in its answer, id of an item
    "instances": ("describe_instances", "Reservations", "ReservationId"),
    "volumes": ("describe_volumes", "Volumes", "VolumeId"),
    "images": ("describe_images", "Images", "ImageId"),
    "groups": ("describe_security_groups", "SecurityGroups", "GroupId"),
    "rules": ("describe_security_group_rules", "SecurityGroupRules", "SecurityGroupRuleId"),
}
_MORE = ("addresses", "launch-images", "roles", "shutdowns", "templates")


class NoCloudError(GpuclusterError):
    """The cloud's lists cannot be read."""


class CloudReader:
    """What AWS says of one cluster. `aws` creates the client of a service; None: there is no access."""

    def __init__(self, cluster: str, aws: Callable[[str], Any] | None) -> None:
        self._cluster, self._make = cluster, aws
        self._clients: dict[str, Any] = {}

    def read(self, argv: Sequence[str] = ()) -> Mapping[str, Any]:
        """Return the list that `argv` names, as in `checks.cloud.SearchScope.words`; without words the cluster's instances."""
        what, *places = argv or ("instances", f"cluster={self._cluster}")
        words = [_pair(place) for place in places]
        try:
            if what in STORES:
                return STORES[what](self._of, words[0][1])
            return self._read(what, words)
        except NoCloudError:
            raise
        except Exception as error:
            one = what in STORES or what == "eks"
            asked = f"AWS does not describe the {what}" if one else f"EC2 does not list {what}"
            raise NoCloudError(f"{asked}: {short(f'{type(error).__name__}: {error}')}") from error

    def _read(self, what: str, places: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
        cluster = [value for key, value in places if key == "cluster"]
        groups = [value for key, value in places if key == "group"]
        subnets = [value for key, value in places if key == "vpc-of"]
        if what == "eks":
            return read_eks(self._of("eks"), cluster[0])
        tagged: Filters = [{"Name": f"tag:{names.TAG_CLUSTER}", "Values": cluster}]
        if what in ("network", "endpoints"):
            vpcs = self._vpcs(subnets)
            ec2 = self._of("ec2")
            return read_network(ec2, vpcs) if what == "network" else read_endpoints(ec2, cluster[0], vpcs)
        if what in _MORE:
            return self._read_more(what, places, tagged)
        if what == "volumes":
            ids = [str(one["InstanceId"]) for one in self._instances(tagged)]
            by: list[Filters] = [
                [{"Name": "attachment.instance-id", "Values": part}] for part in in_filters(ids)
            ]
        elif what == "images":
            images = sorted({str(one["ImageId"]) for one in self._instances(tagged)})
            by = [[{"Name": "image-id", "Values": part}] for part in in_filters(images)]
        elif what == "rules":
            of = self._read("groups", places)
            ids = [str(one["GroupId"]) for one in of["SecurityGroups"]]
            by = [[{"Name": "group-id", "Values": part}] for part in in_filters(ids)]
            return {**of, **self._listed(what, by)}
        else:
            by = [tagged]
            if groups:
                name = "instance.group-id" if what == "instances" else "group-id"
                by.append([{"Name": name, "Values": groups}])
            if subnets:
                by.append([{"Name": "vpc-id", "Values": self._vpcs(subnets)}])
        return self._listed(what, by)

    def _read_more(self, what: str, places: Sequence[tuple[str, str]], tagged: Filters) -> Mapping[str, Any]:
        """What one call for each thing answers, and addresses, which EC2 gives in one page."""
        named = dict(places)
        match what:
            case "addresses":
                return {"Addresses": self._of("ec2").describe_addresses(Filters=tagged)["Addresses"]}
            case "shutdowns":
                return read_shutdowns(self._of("ec2"), self._instances(tagged))
            case "templates":
                return read_templates(self._of, [value for key, value in places if key == "template"])
            case "launch-images":
                return self._launch_images([value for key, value in places if key == "template"])
            case _:
                more = {key: value for key, value in places if key in ("template", "role")}
                return read_roles(self._of, named["cluster"], self._instances(tagged), **more)

    def _launch_images(self, templates: Sequence[str]) -> Mapping[str, Any]:
        """The versions of launch templates, and their images that exist."""
        found = read_templates(self._of, templates)
        ids = {
            one.get("LaunchTemplateData", {}).get("ImageId", "") for one in found["LaunchTemplateVersions"]
        }
        by: list[Filters] = [
            [{"Name": "image-id", "Values": part}] for part in in_filters(sorted(ids - {""}))
        ]
        return {**found, **self._listed("images", by, IncludeDeprecated=True, IncludeDisabled=True)}

    def _listed(self, what: str, by: Iterable[Filters], **more: Any) -> Mapping[str, Any]:
        operation, member, key = _LISTS[what]
        found: dict[str, Any] = {}
        for filters in by:
            for page in self._of("ec2").get_paginator(operation).paginate(Filters=filters, **more):
                for item in page[member]:
                    _merge(found, str(item.get(key, len(found))), item)
        return {member: list(found.values())}

    def _instances(self, filters: Filters) -> list[Mapping[str, Any]]:
        listing = self._listed("instances", [filters])
        return [one for reservation in listing["Reservations"] for one in reservation["Instances"]]

    def _vpcs(self, subnets: Sequence[str]) -> list[str]:
        found = self._of("ec2").describe_subnets(SubnetIds=list(subnets))["Subnets"]
        return sorted({str(one["VpcId"]) for one in found})

    def _of(self, service: str) -> Any:
        if self._make is None:
            raise NoCloudError("there is no access to AWS from here")
        if service not in self._clients:
            self._clients[service] = self._make(service)
        return self._clients[service]


def _pair(word: str) -> tuple[str, str]:
    """`key=value` in two parts."""
    key, _, value = word.partition("=")
    return key, value


def _merge(found: dict[str, Any], key: str, item: Mapping[str, Any]) -> None:
    """Add an item. A reservation comes with those of its instances that match a filter, so two lists add up."""
    if key not in found or "Instances" not in item:
        found[key] = item
        return
    had = found[key]["Instances"]
    known = {one["InstanceId"] for one in had}
    found[key] = {
        **item,
        "Instances": [*had, *(one for one in item["Instances"] if one["InstanceId"] not in known)],
    }

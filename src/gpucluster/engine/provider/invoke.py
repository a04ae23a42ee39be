"""The data sources that programs of ours ask for."""

from collections.abc import Callable, Mapping
from typing import Any

from gpucluster.engine.provider.calls import Cloud
from gpucluster.engine.provider.values import Value, Values


class RefusedError(Exception):
    """The question cannot be answered; the text says why."""


def invoke(cloud: Cloud, token: str, arguments: Values) -> Values:
    """Answer a data source; RefusedError names what is not known."""
    ask = SOURCES.get(token)
    if ask is None:
        raise RefusedError(f"the stand-in for AWS does not know the data source {token!r}")
    return ask(cloud, arguments)


_IMAGE_ARGUMENTS = frozenset({"filters", "owners", "mostRecent"})
_IMAGE_ANSWERS: Mapping[str, str] = {
    "architecture": "Architecture",
    "creationDate": "CreationDate",
    "description": "Description",
    "imageId": "ImageId",
    "name": "Name",
    "ownerId": "OwnerId",
    "rootDeviceName": "RootDeviceName",
    "rootDeviceType": "RootDeviceType",
    "state": "State",
}


def _get_ami(cloud: Cloud, arguments: Values) -> Values:
    unknown = sorted(arguments.keys() - _IMAGE_ARGUMENTS)
    if unknown:
        raise RefusedError(f"the stand-in for AWS does not know {', '.join(unknown)} of getAmi")
    filters = [{"Name": f["name"], "Values": f["values"]} for f in _filters(arguments)]
    asked: dict[str, Any] = {"Filters": filters} if filters else {}
    owners = {"Owners": arguments["owners"]} if arguments.get("owners") else {}
    images = sorted(cloud.ec2.describe_images(**asked, **owners)["Images"], key=_age)
    if not images:
        raise RefusedError(f"no machine image fits {_said(arguments)} in {cloud.region}")
    if len(images) > 1 and not arguments.get("mostRecent"):
        raise RefusedError(
            f"{len(images)} machine images fit {_said(arguments)} in {cloud.region}; one expected"
        )
    image = images[-1]
    found: Values = {name: image.get(api) for name, api in _IMAGE_ANSWERS.items()}
    tags = {t["Key"]: t["Value"] for t in image.get("Tags", [])}
    return {**arguments, **found, "id": image["ImageId"], "tags": tags, "region": cloud.region}


def _filters(arguments: Values) -> list[Values]:
    return arguments.get("filters") or []


def _age(image: Mapping[str, Value]) -> tuple[str, str]:
    return str(image.get("CreationDate", "")), str(image["ImageId"])


def _said(arguments: Values) -> str:
    filters = (f"{f['name']}={','.join(f['values'])}" for f in _filters(arguments))
    owners: list[str] = arguments.get("owners") or []
    return " ".join([*filters, f"owners={','.join(owners)}"])


SOURCES: Mapping[str, Callable[[Cloud, Values], Values]] = {"aws:ec2/getAmi:getAmi": _get_ami}

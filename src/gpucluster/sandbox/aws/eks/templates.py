"""What EKS refuses of the launch template of a node group (EKS user guide, "Customize managed nodes with launch templates")."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.eks.state import invalid, wrong
from gpucluster.sandbox.aws.moto_state import Moto, Template, decoded

_DEFAULT = "t3.medium"  # the machine of a node group that names none
_BLOCK = "CAPACITY_BLOCK"


def checked(asked: Mapping[str, Any], moto: Moto) -> Template | None:
    """Return the template of a request, or refuse it; None without one."""
    named: Mapping[str, str] = asked.get("launchTemplate") or {}
    block = asked.get("capacityType") == _BLOCK
    if not named:
        if block:
            raise invalid("A node group of a capacity block needs a launch template")
        return None
    if ("id" in named) == ("name" in named):
        raise invalid("Either provide launch template ID or launch template name in the request.")
    try:
        found = moto.template(named.get("id"), named.get("name"), named.get("version"))
    except Refusal as refusal:
        raise invalid(refusal.message) from refusal
    for reason in _refused(found.content):
        raise wrong(reason)
    if found.content.get("InstanceType") and asked.get("instanceTypes"):
        raise wrong("Cannot specify instance types in launch template and API Request")
    if found.content.get("ImageId") and asked.get("amiType") not in (None, "CUSTOM"):
        raise wrong(
            "You cannot specify an image id within the launch template and an AMI type in the request"
        )
    market = _part(found.content, "InstanceMarketOptions").get("MarketType")
    reserved = _part(_part(found.content, "CapacityReservationSpecification"), "CapacityReservationTarget")
    if block and not (market == "capacity-block" and reserved and found.content.get("InstanceType")):
        raise invalid(
            "The launch template of a capacity block names its market type, its machine and its reservation"
        )
    if market == "capacity-block" and not block:
        raise invalid("The market type capacity-block goes with the capacity type CAPACITY_BLOCK")
    return found


def faults(template: Template | None) -> Iterator[tuple[str, str]]:
    """What EKS finds only when it merges its own user data into the template: code and message of a health issue."""
    text = None if template is None else template.content.get("UserData")
    if text and not decoded(text).lstrip().startswith(b"MIME-Version:"):
        yield "Ec2LaunchTemplateInvalidConfiguration", "User data was not in the MIME multipart format."


def machines(asked: Mapping[str, Any], template: Template | None) -> list[str] | None:
    """The machines that a description repeats: those of the request, else EKS's default; none if the template has one."""
    given: list[str] = list(asked.get("instanceTypes") or ())
    own = None if template is None else template.content.get("InstanceType")
    return None if own else given or [_DEFAULT]


def shape(asked: Mapping[str, Any], template: Template | None) -> dict[str, str] | None:
    """The template as a description repeats it: with id and name, and the version as it was asked for."""
    if template is None:
        return None
    version = asked["launchTemplate"].get("version") or str(template.version)
    return {"id": template.id, "name": template.name, "version": str(version)}


def _refused(content: Mapping[str, Any]) -> Iterator[str]:
    if content.get("IamInstanceProfile"):
        yield "Launch template should not specify an instance profile. The noderole in your request will be used to construct an instance profile."  # fmt: skip
    nics = cast("list[Mapping[str, Any]]", content.get("NetworkInterfaces") or [])
    if content.get("SubnetId") or any(one.get("SubnetId") for one in nics):
        yield "Launch template should not specify a subnet"
    if content.get("InstanceInitiatedShutdownBehavior"):
        yield "Launch template should not specify a shutdown behavior"
    if content.get("HibernationOptions"):
        yield "Launch template should not specify hibernation"
    if _part(content, "InstanceMarketOptions").get("MarketType") == "spot":
        yield "Remove Spot instance requests from the launch template. Use capacityType instead"


def _part(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", content.get(name) or {})

"""CreateImage of an instance. moto stores the image; it is available at once and has no snapshot."""

import re

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result, check_tags
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.moto_state import Moto

_NAME = re.compile(r"[A-Za-z0-9()\[\] ./\-'@_]{3,128}")  # allowed by the API reference
_TAGGED = ("image", "snapshot")


def calls(model: CloudModel, moto: Moto) -> Calls:
    """The call of this module."""
    return {"CreateImage": lambda call: _create(call, model, moto)}


def _create(call: Ec2Call, model: CloudModel, moto: Moto) -> Result:
    name, instance = str(call.asked.get("Name")), str(call.asked.get("InstanceId"))
    if not _NAME.fullmatch(name):
        raise Refusal("InvalidAMIName.Malformed", f"AMI name {name} is invalid")
    (found,) = model.describe((instance,), call.now)
    if found.state not in (InstanceState.RUNNING, InstanceState.STOPPED):
        raise Refusal("IncorrectState", f"Instance '{instance}' is not in a valid state: {found.state.value}")
    taken = moto.image_named(name)
    if taken is not None:
        raise Refusal("InvalidAMIName.Duplicate", f"AMI name {name} is already in use by AMI {taken}")
    return {"ImageId": moto.register_image(name, _tags(call))}


def _tags(call: Ec2Call) -> dict[str, str]:
    """The block devices of the image; a missing snapshot has none."""
    found: dict[str, str] = {}
    for part in call.asked.get("TagSpecifications") or ():
        if part.get("ResourceType") not in _TAGGED:
            raise Refusal(
                "InvalidParameterValue",
                f"'{part.get('ResourceType')}' is not a valid taggable resource type for this operation.",
            )
        if part.get("ResourceType") == "image":
            found |= {str(t["Key"]): str(t.get("Value") or "") for t in part.get("Tags") or ()}
    check_tags(found)
    return found

"""CreateImage of the model's machines; moto keeps the image, available at once, and no snapshot of anything."""

import re

from gpucluster.cloud.model import CloudModel, Refusal
from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.backends import Moto
from gpucluster.sandbox.ec2.call import Call, Calls, Result, check_tags

_NAME = re.compile(r"[A-Za-z0-9()\[\] ./\-'@_]{3,128}")  # as the API reference allows
_TAGGED = ("image", "snapshot")


def calls(model: CloudModel, moto: Moto) -> Calls:
    """The one call."""
    return {"CreateImage": lambda call: _create(call, model, moto)}


def _create(call: Call, model: CloudModel, moto: Moto) -> Result:
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


def _tags(call: Call) -> dict[str, str]:
    """The image's; a snapshot that is not there has none."""
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

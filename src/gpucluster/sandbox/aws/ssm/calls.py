"""The calls of Run Command: they run in the machine of the instance, and refuse as AWS does (T53). moto has the parameters."""

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws import shapes
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Refusal
from gpucluster.sandbox.aws.iam.policies import Context, Need
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, need
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall
from gpucluster.sandbox.aws.ssm.state import Agents, Command, Commands, Invocation, new_id

Result = dict[str, Any]
Granted = Callable[[str, Need], bool]  # whether the policies of a role allow it
DOCUMENT = "AWS-RunShellScript"
# The rights without which an agent does not register, or takes no commands
AGENT_NEEDS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
_PARAMETERS = frozenset({"commands", "executionTimeout", "workingDirectory"})
_SEND = frozenset(  # what the sandbox does with a command; other members are refused by name
    {
        *("InstanceIds", "DocumentName", "Parameters", "Comment", "TimeoutSeconds"),
        *("OutputS3BucketName", "OutputS3KeyPrefix", "OutputS3Region"),
    }
)
_OF_PARAMETER_STORE = re.compile(r"\{\{\s*ssm")
_DEFAULT_LIMIT_S = 3600.0  # of the document


def rights(request: ApiRequest, model: CloudModel, _moto: Moto, now: float) -> Iterable[Need]:
    """SendCommand needs its action on the document, on each instance with its tags, and on the bucket of the output.

    It has no global condition keys here: a policy that uses one of them, such as `aws:ResourceTag`, is refused (T53).
    """
    if request.operation != "SendCommand":
        yield need(request, "*", {})
        return
    asked = shapes.parameters(request.service, request.operation, request.target, request.body)
    for arn, context in _sent_to(request, model, asked, now):
        yield Need(action="ssm:SendCommand", resource=arn, context=context)


def _sent_to(
    request: ApiRequest, model: CloudModel, asked: Mapping[str, Any], now: float
) -> Iterable[tuple[str, Context]]:
    for one in asked.get("InstanceIds", ()):
        tags = _tags(model, str(one), now)
        own = {f"ssm:resourcetag/{key}": (value,) for key, value in tags.items()}
        yield f"arn:aws:ec2:{request.region}:{ACCOUNT}:instance/{one}", own
    owner = "" if str(asked["DocumentName"]).startswith("AWS-") else ACCOUNT
    yield f"arn:aws:ssm:{request.region}:{owner}:document/{asked['DocumentName']}", {}
    if "OutputS3BucketName" in asked:
        yield f"arn:aws:s3:::{asked['OutputS3BucketName']}", {}


def calls(model: CloudModel, moto: Moto, agents: Agents, granted: Granted) -> Calls:
    """Calls of this module by operation name."""
    here = _RunCommand(model, moto, agents, granted)
    return {
        "SendCommand": here.send,
        "GetCommandInvocation": here.invocation,
        "ListCommandInvocations": here.invocations,
        "ListCommands": here.commands,
        "CancelCommand": here.cancel,
        "DescribeInstanceInformation": here.registered,
    }


class _RunCommand:
    def __init__(self, model: CloudModel, moto: Moto, agents: Agents, granted: Granted) -> None:
        self._model, self._moto, self._agents, self._granted = model, moto, agents, granted
        self._commands = Commands()

    def send(self, call: ServiceCall) -> Result:
        asked = call.asked
        for name in sorted(asked.keys() - _SEND):
            raise Refusal("UnsupportedOperation", f"the sandbox has no ssm:SendCommand with {name}")
        instances = [str(one) for one in asked.get("InstanceIds", ())]
        if len(set(instances)) != len(instances):
            raise Refusal("DuplicateInstanceId", "You can't specify an instance ID in more than one place.")
        bad = [one for one in instances if not self._is_registered(one, call.now)]
        if bad or not instances:
            listed = ", ".join(bad)
            raise Refusal("InvalidInstanceId", f"Instances [[{listed}]] not in a valid state for account {ACCOUNT}")  # fmt: skip
        command = _command(asked, call.now)
        self._commands.send(command, instances, self._agents, self._uploads(command))
        return {"Command": _sent(command, instances)}

    def invocation(self, call: ServiceCall) -> Result:
        command, instance = self._known(call), str(call.asked["InstanceId"])
        found = next((i for i in self._commands.invocations(command.id) if i.instance == instance), None)
        if found is None or call.now < command.sent_at + self._model.timing.invocation_s:
            raise _missing()
        done = found.code >= 0
        return {
            "CommandId": command.id,
            "InstanceId": instance,
            "Comment": command.comment,
            "DocumentName": command.document,
            "PluginName": "aws:runShellScript",
            "ResponseCode": found.code,
            "Status": found.status,
            "StatusDetails": found.details,
            "StandardOutputContent": found.stdout if done else "",
            "StandardErrorContent": found.stderr if done else "",
            "StandardOutputUrl": self._url(command, instance, "stdout"),
            "StandardErrorUrl": self._url(command, instance, "stderr"),
        }

    def invocations(self, call: ServiceCall) -> Result:
        for name in sorted(call.asked.keys() - {"CommandId", "InstanceId", "Details", "MaxResults"}):
            raise Refusal("UnsupportedOperation", f"the sandbox has no ssm:ListCommandInvocations with {name}")  # fmt: skip
        wanted, instance = call.asked.get("CommandId"), call.asked.get("InstanceId")
        rows = [
            _listed(command, one)
            for command in self._commands.all()
            if wanted in (None, command.id)
            for one in self._commands.invocations(command.id)
            if instance in (None, one.instance)
        ]
        return {"CommandInvocations": rows}

    def commands(self, call: ServiceCall) -> Result:
        for name in sorted(call.asked.keys() - {"CommandId", "MaxResults"}):
            raise Refusal("UnsupportedOperation", f"the sandbox has no ssm:ListCommands with {name}")
        wanted = call.asked.get("CommandId")
        found = [c for c in self._commands.all() if wanted in (None, c.id)]
        return {"Commands": [_sent(c, [i.instance for i in self._commands.invocations(c.id)]) for c in found]}

    def cancel(self, call: ServiceCall) -> Result:
        command = self._commands.find(str(call.asked["CommandId"]))
        if command is None:
            raise Refusal("InvalidCommandId", "")
        self._commands.cancel(command.id, call.asked.get("InstanceIds", ()))
        return {}

    def registered(self, call: ServiceCall) -> Result:
        ids: set[str] | None = None
        if "InstanceInformationFilterList" in call.asked:
            raise Refusal("UnsupportedOperation", "the sandbox has no InstanceInformationFilterList")
        for one in call.asked.get("Filters", ()):
            if one["Key"] != "InstanceIds":
                raise Refusal("InvalidFilterKey", f"the sandbox has no filter {one['Key']!r}")
            ids = set(one["Values"]) if ids is None else ids & set(one["Values"])
        rows = [
            {"InstanceId": one.id, "PingStatus": "Online", "PlatformType": "Linux", "ResourceType": "EC2Instance"}
            for one in sorted(self._model.describe((), call.now), key=lambda i: i.id)
            if (ids is None or one.id in ids) and self._is_registered(one.id, call.now)
        ]  # fmt: skip
        return {"InstanceInformationList": rows}

    def _known(self, call: ServiceCall) -> Command:
        found = self._commands.find(str(call.asked["CommandId"]))
        if found is None:
            raise _missing()
        return found

    def _is_registered(self, instance_id: str, now: float) -> bool:
        """Whether the instance runs, its role lets the agent register, and its machine is up."""
        try:
            instance = self._model.instance(instance_id, now)
        except Refusal:
            return False
        role = self._role(instance)
        if instance.state is not InstanceState.RUNNING or role is None:
            return False
        may = all(self._granted(role, Need(action=action, resource="*")) for action in AGENT_NEEDS)
        return may and self._agents(instance_id) is not None

    def _role(self, instance: Ec2Instance) -> str | None:
        try:
            return self._moto.profile(None, instance.spec.profile).role if instance.spec.profile else None
        except Refusal:
            return None

    def _uploads(self, command: Command) -> Callable[[str, str, str], None]:
        """The agent writes with the role of its machine. Without the right it writes nothing, and the command does not fail."""

        def upload(instance: str, key: str, text: str) -> None:
            arn = f"arn:aws:s3:::{command.bucket}/{key}"
            try:
                role = self._role(self._model.instance(instance, command.sent_at))
                needs = [Need(action="s3:PutObject", resource=arn)]
                needs += keys.object_needs("PutObject", self._moto.bucket_key(command.bucket), self._moto)
                if role is not None and all(self._granted(role, one) for one in needs):
                    self._moto.put_object(command.bucket, key, text.encode())
            except Refusal:  # the instance has ended, or the bucket or its key is gone
                return

        return upload

    def _url(self, command: Command, instance: str, stream: str) -> str:
        if not command.bucket:
            return ""
        return f"https://s3.{self._moto.region}.amazonaws.com/{command.bucket}/{command.key(instance, stream)}"  # fmt: skip


def _command(asked: Mapping[str, Any], now: float) -> Command:
    if asked["DocumentName"] != DOCUMENT:
        raise Refusal("InvalidDocument", f"the sandbox has only the document {DOCUMENT}")
    parameters: Mapping[str, list[str]] = asked.get("Parameters", {})
    unknown = sorted(parameters.keys() - _PARAMETERS)
    if unknown or not parameters.get("commands"):
        what = f"Parameter {unknown[0]!r} is not known" if unknown else "Parameter 'commands' is required"
        raise Refusal("InvalidParameters", f"{what} to the document {DOCUMENT}")
    script = "\n".join(parameters["commands"])
    if _OF_PARAMETER_STORE.search(script):
        raise Refusal("UnsupportedOperation", "the sandbox puts no parameters into commands")
    folder = "".join(parameters.get("workingDirectory", ()))
    if folder:
        raise Refusal("UnsupportedOperation", "the sandbox has no workingDirectory")
    limit = "".join(parameters.get("executionTimeout", ())) or str(_DEFAULT_LIMIT_S)
    try:
        limit_s = float(limit)
    except ValueError as error:
        raise Refusal("InvalidParameters", f"executionTimeout: {limit!r} is not a number") from error
    return Command(
        id=new_id(),
        document=DOCUMENT,
        script=script,
        limit_s=limit_s,
        sent_at=now,
        comment=str(asked.get("Comment", "")),
        bucket=str(asked.get("OutputS3BucketName", "")),
        prefix=str(asked.get("OutputS3KeyPrefix", "")),
    )


def _sent(command: Command, instances: list[str]) -> Result:
    return {
        "CommandId": command.id,
        "DocumentName": command.document,
        "Comment": command.comment,
        "InstanceIds": instances,
        "RequestedDateTime": _time(command.sent_at),
        "Status": "Pending",
        "StatusDetails": "Pending",
        "TargetCount": len(instances),
        "OutputS3BucketName": command.bucket,
        "OutputS3KeyPrefix": command.prefix,
    }


def _listed(command: Command, one: Invocation) -> Result:
    return {
        "CommandId": command.id,
        "InstanceId": one.instance,
        "Comment": command.comment,
        "DocumentName": command.document,
        "RequestedDateTime": _time(command.sent_at),
        "Status": one.status,
        "StatusDetails": one.details,
    }


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _missing() -> Refusal:
    return Refusal("InvocationDoesNotExist", "")


def _tags(model: CloudModel, instance_id: str, now: float) -> Mapping[str, str]:
    try:
        return model.instance(instance_id, now).tags
    except Refusal:
        return {}

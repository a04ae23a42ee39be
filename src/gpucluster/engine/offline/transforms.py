"""Run transforms: functions of the program that change a resource's registration. The SDK serves them as callbacks."""

import re
from collections.abc import Iterable
from typing import Any, Final

import grpc
from pulumi.runtime.proto import callback_pb2, callback_pb2_grpc, resource_pb2

PATIENCE_S: Final = 30.0  # a transform is code of the program and can block for ever
# field of the request -> field of the options that a transform receives
LISTS: Final = {
    "dependencies": "depends_on",
    "ignoreChanges": "ignore_changes",
    "replaceOnChanges": "replace_on_changes",
    "aliases": "aliases",
    "additionalSecretOutputs": "additional_secret_outputs",
    "hideDiffs": "hide_diff",
    "replace_with": "replace_with",
}
TEXTS: Final = {
    "version": "version",
    "provider": "provider",
    "pluginDownloadURL": "plugin_download_url",
    "deletedWith": "deleted_with",
    "importId": "import",
}
FLAGS: Final = {"protect": "protect", "retainOnDelete": "retain_on_delete"}
MESSAGES: Final = {"customTimeouts": "custom_timeouts", "hooks": "hooks"}

Request = resource_pb2.RegisterResourceRequest
Options = resource_pb2.TransformResourceOptions


class TransformError(Exception):
    """A transform raised an exception, or its server was unreachable."""


def transformed(request: Request, callbacks: Iterable[callback_pb2.Callback]) -> Request:
    """Return the registration after all transforms, in the given order."""
    for callback in callbacks:
        asked = resource_pb2.TransformRequest(
            type=request.type,
            name=request.name,
            custom=request.custom,
            parent=request.parent,
            properties=request.object,
            options=_options(request),
        )
        answer = resource_pb2.TransformResponse.FromString(_call(callback, asked.SerializeToString()))
        request = _rewritten(request, answer)
    return request


def _call(callback: callback_pb2.Callback, message: bytes) -> bytes:
    asked = callback_pb2.CallbackInvokeRequest(token=callback.token, request=message)
    with grpc.insecure_channel(callback.target) as channel:
        stub: Any = callback_pb2_grpc.CallbacksStub(channel)
        try:
            return stub.Invoke(asked, timeout=PATIENCE_S).response
        except grpc.RpcError as error:
            raise TransformError(_reason(error)) from error


def _reason(error: grpc.RpcError) -> str:
    """Return the first line without the SDK's random callback name; the program's traceback follows it."""
    details = error.details() if isinstance(error, grpc.Call) else None
    line = (details or str(error)).partition("\n")[0].rstrip(":")
    return "a transform failed: " + re.sub(r"^Invoke callback \S+ error: ", "", line)


def _options(request: Request) -> Options:
    options = Options(providers=request.providers, plugin_checksums=request.pluginChecksums)
    for theirs, ours in LISTS.items():
        getattr(options, ours).extend(getattr(request, theirs))
    for theirs, ours in TEXTS.items():
        setattr(options, ours, getattr(request, theirs))
    for theirs, ours in FLAGS.items():
        if request.HasField(theirs):  # pyright: ignore[reportArgumentType]
            setattr(options, ours, getattr(request, theirs))
    for theirs, ours in MESSAGES.items():
        if request.HasField(theirs):  # pyright: ignore[reportArgumentType]
            getattr(options, ours).CopyFrom(getattr(request, theirs))
    if request.deleteBeforeReplaceDefined:
        options.delete_before_replace = request.deleteBeforeReplace
    return options


def _rewritten(request: Request, answer: resource_pb2.TransformResponse) -> Request:
    """Return the options of the transform, or the old ones if it returns none."""
    new = Request()
    new.CopyFrom(request)
    new.object.CopyFrom(answer.properties)
    if not answer.HasField("options"):
        return new
    options = answer.options
    for theirs, ours in LISTS.items():
        new.ClearField(theirs)  # pyright: ignore[reportArgumentType]
        getattr(new, theirs).extend(getattr(options, ours))
    for theirs, ours in TEXTS.items():
        setattr(new, theirs, getattr(options, ours))
    for theirs, ours in (*FLAGS.items(), *MESSAGES.items()):
        new.ClearField(theirs)  # pyright: ignore[reportArgumentType]
        if options.HasField(ours):  # pyright: ignore[reportArgumentType]
            _set(new, theirs, getattr(options, ours))
    new.deleteBeforeReplaceDefined = options.HasField("delete_before_replace")
    new.deleteBeforeReplace = options.delete_before_replace
    return new


def _set(request: Request, name: str, value: object) -> None:
    if name in MESSAGES:
        getattr(request, name).CopyFrom(value)
    else:
        setattr(request, name, value)

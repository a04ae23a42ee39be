"""The provider protocol (`pulumirpc.ResourceProvider`). Each call uses the table of resource types."""

import json
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn, Protocol, cast

import grpc
from botocore.exceptions import BotoCoreError, ClientError
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from gpucluster.engine.data_sources import LookupRefusedError, look_up
from gpucluster.engine.values import Values, from_struct, to_struct
from gpucluster.sandbox.provider import upstream_calls
from gpucluster.sandbox.provider.check import check
from gpucluster.sandbox.provider.cloud import Cloud, StoppedError, TooLateError
from gpucluster.sandbox.provider.crud import Crud, HalfMadeError, unknown_type
from gpucluster.sandbox.provider.diff import diff
from gpucluster.sandbox.provider.observe import foreseen
from gpucluster.sandbox.provider.schema import ResourceType
from gpucluster.sandbox.provider.table import TYPES


class Context(Protocol):
    """The part of the gRPC context that this module uses. `abort` raises."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn: ...

    def set_trailing_metadata(self, trailing_metadata: Any) -> None: ...


CONFIG = frozenset({"region", "defaultTags", "version", "skipCredentialsValidation", "skipRegionValidation"})
KEYS = frozenset({"accessKey", "secretKey", "token"})  # keys would be stored in the state


class AwsStandIn(provider_pb2_grpc.ResourceProviderServicer):
    """One process of the provider: configured once, then called from several threads."""

    def __init__(self, report_progress: Callable[[str, str], None] = lambda _urn, _text: None) -> None:
        self._crud: Crud | None = None
        self._report_progress = report_progress  # receives a URN and a message

    # --- configuration -----------------------------------------------------------------------
    def GetPluginInfo(self, request: empty_pb2.Empty, context: Context) -> plugin_pb2.PluginInfo:  # noqa: N802
        """Return the version of the pulumi-aws package: the engine warns about an older or missing version."""
        return plugin_pb2.PluginInfo(version=version("pulumi-aws"))

    def CheckConfig(  # noqa: N802
        self, request: provider_pb2.CheckRequest, context: Context
    ) -> provider_pb2.CheckResponse:
        """Reject unknown settings and keys. Keys come from the environment."""
        settings = from_struct(request.news)
        failures = [
            provider_pb2.CheckFailure(property=key, reason=_config_reason(key))
            for key in sorted(settings.keys() - CONFIG)
        ]
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def DiffConfig(  # noqa: N802
        self, request: provider_pb2.DiffRequest, context: Context
    ) -> provider_pb2.DiffResponse:
        """Another region replaces the provider. Other changes are updates."""
        olds, news = from_struct(request.olds), from_struct(request.news)
        changed = sorted(k for k in CONFIG if olds.get(k) != news.get(k))
        some = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(
            changes=some, diffs=changed, replaces=[k for k in changed if k == "region"]
        )

    def Configure(  # noqa: N802
        self, request: provider_pb2.ConfigureRequest, context: Context
    ) -> provider_pb2.ConfigureResponse:
        """Store region and default tags. The engine unwraps secrets and marks outputs as secret again."""
        settings = from_struct(request.args)
        given = settings.get("defaultTags") or "{}"
        tags = cast(
            Values, json.loads(given) if isinstance(given, str) else given
        )  # JSON text from old engines
        self._crud = Crud(Cloud(str(settings.get("region", "")), default_tags=tags.get("tags") or {}))
        return provider_pb2.ConfigureResponse(
            supportsPreview=True, acceptSecrets=False, acceptResources=False
        )

    def Cancel(self, request: empty_pb2.Empty, context: Context) -> empty_pb2.Empty:  # noqa: N802
        """Stop all waits at once."""
        if self._crud is not None:
            self._crud.cloud.stopped.set()
        return empty_pb2.Empty()

    # --- pure --------------------------------------------------------------------------------
    def Check(  # noqa: N802
        self, request: provider_pb2.CheckRequest, context: Context
    ) -> provider_pb2.CheckResponse:
        """Reject what the table does not contain, and complete the inputs."""
        kind = TYPES.get(request.type)
        if kind is None:
            failure = provider_pb2.CheckFailure(property="", reason=unknown_type(request.type))
            return provider_pb2.CheckResponse(inputs=request.news, failures=[failure])
        checked = check(
            kind,
            from_struct(request.news),
            from_struct(request.olds),
            name=request.name,
            seed=request.randomSeed,
            default_tags=self._ready(context).default_tags,
        )
        failures = [provider_pb2.CheckFailure(property=f.property, reason=f.reason) for f in checked.failures]
        return provider_pb2.CheckResponse(inputs=to_struct(checked.inputs), failures=failures)

    def Diff(  # noqa: N802
        self, request: provider_pb2.DiffRequest, context: Context
    ) -> provider_pb2.DiffResponse:
        """Return the changes, by the table."""
        kind = _known(request.type, context)
        found = diff(kind, from_struct(request.old_inputs), from_struct(request.news))
        ignored = set(request.ignoreChanges)
        changed = [k for k in found.changed if k not in ignored]
        replaces = [k for k in found.replaces if k not in ignored]
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=changed,
            replaces=replaces,
            deleteBeforeReplace=bool(replaces) and found.delete_first,
            hasDetailedDiff=True,
            detailedDiff={k: _detail(k in replaces) for k in changed},
        )

    # --- calls -------------------------------------------------------------------------------
    def Create(  # noqa: N802
        self, request: provider_pb2.CreateRequest, context: Context
    ) -> provider_pb2.CreateResponse:
        """Create the resource. In a preview, return the expected outputs."""
        kind, inputs = _known(request.type, context), from_struct(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(properties=to_struct(foreseen(kind, inputs, None)))
        try:
            report_progress = partial(self._report_progress, request.urn)
            upstream_calls.ask(self._ready(context).cloud, kind.name, "create", "", inputs)
            identifier, outputs = self._ready(context).create(kind, inputs, request.timeout, report_progress)
        except HalfMadeError as error:
            _abort_half_made(context, error)
        except FAILURES as error:
            _abort(context, f"{kind.name}: {error}")
        return provider_pb2.CreateResponse(id=identifier, properties=to_struct(outputs))

    def Read(  # noqa: N802
        self, request: provider_pb2.ReadRequest, context: Context
    ) -> provider_pb2.ReadResponse:
        """Read the resource. An empty id means that it does not exist."""
        kind, state = _known(request.type, context), from_struct(request.properties)
        inputs = from_struct(request.inputs) or state
        try:
            upstream_calls.ask(self._ready(context).cloud, kind.name, "read", request.id, {**inputs, **state})
            seen = self._ready(context).read(kind, request.id, {**inputs, **state}, inputs)
        except FAILURES as error:
            _abort(context, f"{kind.name} {request.id}: {error}")
        if seen is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=request.id, properties=to_struct(seen.outputs), inputs=to_struct(seen.inputs)
        )

    def Update(  # noqa: N802
        self, request: provider_pb2.UpdateRequest, context: Context
    ) -> provider_pb2.UpdateResponse:
        """Update the resource in place. In a preview, return the expected outputs."""
        kind, news = _known(request.type, context), from_struct(request.news)
        olds = from_struct(request.olds)
        old_inputs = from_struct(request.old_inputs) or olds
        if request.preview:
            return provider_pb2.UpdateResponse(properties=to_struct(foreseen(kind, news, olds)))
        try:
            upstream_calls.ask(self._ready(context).cloud, kind.name, "update", request.id, news)
            outputs = self._ready(context).update(kind, request.id, old_inputs, news, request.timeout)
        except HalfMadeError as error:
            _abort_half_made(context, error)
        except FAILURES as error:
            _abort(context, f"{kind.name} {request.id}: {error}")
        return provider_pb2.UpdateResponse(properties=to_struct(outputs))

    def Delete(  # noqa: N802
        self, request: provider_pb2.DeleteRequest, context: Context
    ) -> empty_pb2.Empty:
        """Delete the resource. A missing resource counts as deleted."""
        kind = _known(request.type, context)
        state = {**from_struct(request.old_inputs), **from_struct(request.properties)}
        try:
            upstream_calls.ask(self._ready(context).cloud, kind.name, "delete", request.id, state)
            self._ready(context).delete(kind, request.id, state, request.timeout)
        except FAILURES as error:
            _abort(context, f"{kind.name} {request.id}: {error}")
        return empty_pb2.Empty()

    def Invoke(  # noqa: N802
        self, request: provider_pb2.InvokeRequest, context: Context
    ) -> provider_pb2.InvokeResponse:
        """Run a data source."""
        try:
            upstream_calls.ask_lookup(self._ready(context).cloud, request.tok)
            answer = look_up(self._ready(context).cloud, request.tok, from_struct(request.args))
        except (LookupRefusedError, *FAILURES) as error:
            _abort(context, f"{request.tok}: {error}")
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(to_struct(answer))  # the field's name is a Python keyword
        return response

    def _ready(self, context: Context) -> Crud:
        if self._crud is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the provider was not configured")
        return self._crud


UNKNOWN_CODE = 2  # grpc.StatusCode.UNKNOWN in the protocol
FAILURES = (ClientError, BotoCoreError, TooLateError, StoppedError, RuntimeError)


def _known(token: str, context: Context) -> ResourceType:
    kind = TYPES.get(token)
    if kind is None:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, unknown_type(token))
    return kind


def _config_reason(key: str) -> str:
    if key in KEYS:
        return "keys come from the environment (AWS_ACCESS_KEY_ID ...), so that none stands in the state"
    return f"the stand-in for AWS does not know the setting {key!r}"


def _detail(replaces: bool) -> provider_pb2.PropertyDiff:
    kinds = provider_pb2.PropertyDiff
    return kinds(kind=kinds.UPDATE_REPLACE if replaces else kinds.UPDATE, inputDiff=True)


def _abort(context: Context, message: str) -> NoReturn:
    context.abort(grpc.StatusCode.UNKNOWN, message)


def _abort_half_made(context: Context, error: HalfMadeError) -> NoReturn:
    """Attach id and properties to the error, so that the engine keeps the resource in its state."""
    detail = provider_pb2.ErrorResourceInitFailed(
        id=error.id,
        properties=to_struct(error.seen.outputs),
        inputs=to_struct(error.seen.inputs),
        reasons=[error.reason],
    )
    packed = any_pb2.Any()
    packed.Pack(detail)
    status = status_pb2.Status(code=UNKNOWN_CODE, message=error.reason, details=[packed])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    _abort(context, error.reason)

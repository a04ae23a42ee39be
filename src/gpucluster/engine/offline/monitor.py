"""Implement the engine's side of Pulumi's protocol, which a program's SDK calls while the program runs."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import (
    callback_pb2,
    engine_pb2,
    engine_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
)

from gpucluster.engine.offline import placeholders
from gpucluster.engine.offline.answers import Answer, Recording, key
from gpucluster.engine.offline.located import from_uri
from gpucluster.engine.offline.lookups import ASSUMED, LOOKUPS, STACK_REFERENCE
from gpucluster.engine.offline.model import Lookup, Value
from gpucluster.engine.offline.registry import (
    RefusedError,
    Registry,
    own_transforms,
    read,
    reference,
    registered,
)
from gpucluster.engine.offline.transforms import TransformError, transformed
from gpucluster.engine.offline.urns import StackIdentity
from gpucluster.engine.offline.wire import shown
from gpucluster.engine.values import UNKNOWN_ON_WIRE, to_struct

# Without OUTPUT_VALUES inputs stay plain. INVOKE_TRANSFORMS and PARAMETERIZATION are unsupported: the SDK reports that.
FEATURES: Final = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACEMENT_TRIGGER,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_TRANSFORMS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ERROR_HOOKS,
)


class Context(Protocol):
    """The part of the gRPC context that this module uses. `abort` raises."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn: ...


class Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """Record every registration. Nothing is created, so values from the cloud stay unknown."""

    def __init__(
        self, place: StackIdentity, answers: Iterable[Recording] = (), *, assume: bool = False
    ) -> None:
        self.registry = Registry(place)
        self._answers = {key(one.token, one.arguments): one.answer for one in answers}
        self.refusals: list[str] = []  # in order; the first one is the cause
        self._place = place
        self._assume = assume

    def GetDeploymentInfo(self, request: empty_pb2.Empty, context: Context) -> resource_pb2.DeploymentInfo:  # noqa: N802
        return resource_pb2.DeploymentInfo(
            project=self._place.project, stack=self._place.stack, dryRun=True, supportedFeatures=FEATURES
        )

    def RegisterResource(  # noqa: N802
        self, request: resource_pb2.RegisterResourceRequest, context: Context
    ) -> resource_pb2.RegisterResourceResponse:
        try:
            return self._register(request)
        except (RefusedError, TransformError) as error:
            self._refuse(context, str(error), request)

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest, context: Context
    ) -> empty_pb2.Empty:
        try:
            self.registry.add_outputs(request.urn, shown(request.outputs))
        except RefusedError as error:
            self._refuse(context, str(error))
        return empty_pb2.Empty()

    def ReadResource(  # noqa: N802
        self, request: resource_pb2.ReadResourceRequest, context: Context
    ) -> resource_pb2.ReadResourceResponse:
        urn = self.registry.urn(request)
        try:
            self.registry.add(read(urn, request))
        except RefusedError as error:
            self._refuse(context, str(error), request)
        if request.type == STACK_REFERENCE:
            self.registry.add_lookup(reference(request))
            return resource_pb2.ReadResourceResponse(urn=urn, properties=_referenced(request.id))
        if request.type in LOOKUPS:
            answer = self._answered(request.type, {"id": request.id})
            properties = request.properties if answer is None else to_struct(answer)
            return resource_pb2.ReadResourceResponse(urn=urn, properties=properties)
        return resource_pb2.ReadResourceResponse(urn=urn, properties=request.properties)

    def Invoke(  # noqa: N802
        self, request: resource_pb2.ResourceInvokeRequest, context: Context
    ) -> resource_pb2.ResourceInvokeResponse:
        if request.tok not in LOOKUPS:
            self._refuse(
                context,
                f"it looks up {request.tok!r}, which the offline planner does not know"
                f" (it knows {', '.join(sorted(LOOKUPS))}; engine/offline/lookups.py)",
                request,
            )
        answer = self._answered(request.tok, shown(request.args))
        if answer is None and self._assume:
            region = self.registry.region_of(request.provider) or placeholders.REGION
            answer = {
                **placeholders.outputs(request.tok, "looked-up", region),
                **ASSUMED.get(request.tok, {}),
            }
        if answer is None:
            return resource_pb2.ResourceInvokeResponse(unknown=True)
        response = resource_pb2.ResourceInvokeResponse()
        getattr(response, "return").CopyFrom(to_struct(answer))  # the field's name is a Python keyword
        return response

    def Call(self, request: resource_pb2.ResourceCallRequest, context: Context) -> NoReturn:  # noqa: N802
        self._refuse(context, f"it calls {request.tok!r}, a provider's method, which needs the provider")

    def RegisterStackTransform(self, request: callback_pb2.Callback, context: Context) -> empty_pb2.Empty:  # noqa: N802
        self.registry.add_transform(request)
        return empty_pb2.Empty()

    def RegisterResourceHook(self, request: object, context: Context) -> empty_pb2.Empty:  # noqa: N802
        """Accept and ignore the hook: hooks run when a resource is created, and the planner creates none."""
        return empty_pb2.Empty()

    def RegisterErrorHook(self, request: object, context: Context) -> empty_pb2.Empty:  # noqa: N802
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(self, request: empty_pb2.Empty, context: Context) -> empty_pb2.Empty:  # noqa: N802
        return empty_pb2.Empty()

    def _answered(self, token: str, arguments: Mapping[str, Value]) -> Answer | None:
        """Return the recorded answer, or None. The query is recorded in both cases."""
        answer = self._answers.get(key(token, arguments))
        self.registry.add_lookup(Lookup(token=token, arguments=arguments, answered=answer is not None))
        return answer

    def _register(
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        if request.remote:
            raise RefusedError(
                f"{request.type} {request.name!r} is a component of a provider, which is not here"
            )
        new = transformed(request, self.registry.transforms_for(request))
        urn = self.registry.urn(new)
        resource = registered(urn, new, self.registry.aliases_of(new))
        self.registry.add(resource, own_transforms(request))
        if self._assume and new.custom:
            return _assumed(urn, new)
        return resource_pb2.RegisterResourceResponse(urn=urn, object=new.object)

    def _refuse(self, context: Context, text: str, request: Any = None) -> NoReturn:
        """Reject the call. The message includes the program's line if the SDK sends it."""
        where = "" if request is None else from_uri(request.sourcePosition.uri, request.sourcePosition.line)
        self.refusals.append(f"{where}: {text}" if where else text)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusals[-1])


class Engine(engine_pb2_grpc.EngineServicer):
    """Print the log messages of the program."""

    def Log(self, request: engine_pb2.LogRequest, context: Context) -> empty_pb2.Empty:  # noqa: N802
        if request.severity != engine_pb2.LogSeverity.DEBUG:
            word = engine_pb2.LogSeverity.Name(request.severity).lower()
            for line in request.message.splitlines():
                print(f"{word}: {line}", file=sys.stderr, flush=True)  # noqa: T201
        return empty_pb2.Empty()

    def RequirePulumiVersion(  # noqa: N802
        self, request: engine_pb2.RequirePulumiVersionRequest, context: Context
    ) -> engine_pb2.RequirePulumiVersionResponse:
        """Accept every version: there is no CLI here. The real CLI is checked at `up`."""
        return engine_pb2.RequirePulumiVersionResponse()


def _assumed(
    urn: str, request: resource_pb2.RegisterResourceRequest
) -> resource_pb2.RegisterResourceResponse:
    """Return the program's values, completed with placeholders."""
    values = to_struct(placeholders.outputs(request.type, request.name))
    identity = values["id"]
    values.MergeFrom(request.object)
    return resource_pb2.RegisterResourceResponse(urn=urn, id=str(identity), object=values)


def _referenced(name: str) -> struct_pb2.Struct:
    values = struct_pb2.Struct()
    values.update({"name": name, "outputs": UNKNOWN_ON_WIRE, "secretOutputNames": UNKNOWN_ON_WIRE})
    return values

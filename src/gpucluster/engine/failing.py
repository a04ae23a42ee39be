"""What our own verbs add to a refusal of the cloud, also where `pulumi up` is typed: the program says it beside the failed resource.

An error hook, so that it is the same before the real provider; it never asks for another try.
"""

import pulumi
from pulumi.runtime import register_stack_transformation
from pulumi.runtime.proto import engine_pb2, resource_pb2, resource_pb2_grpc
from pulumi.runtime.settings import get_engine, get_monitor, monitor_supports_feature

from gpucluster.engine.blame import Explain

HOOK = "gpucluster:blame"


def tell_failures(explain: Explain) -> None:
    """From now on each resource of this program that cannot be made or changed is explained in the engine's output.

    An engine without error hooks says it in the cloud's words alone.
    """
    if not _takes_hooks():
        return
    binding = pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(HOOK, _hook(explain))])

    def watch(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if not isinstance(args.resource, pulumi.CustomResource):
            return None
        opts = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(hooks=binding))
        return pulumi.ResourceTransformationResult(args.props, opts)

    register_stack_transformation(watch)


def _takes_hooks() -> bool:
    """Pulumi's mocks claim the feature, and have no server for it."""
    real = isinstance(get_monitor(), resource_pb2_grpc.ResourceMonitorStub)
    return real and monitor_supports_feature(resource_pb2.RESOURCE_MONITOR_FEATURE_ERROR_HOOKS)


def _hook(explain: Explain) -> pulumi.ErrorHookFunction:
    def tell(args: pulumi.ErrorHookArgs) -> bool:
        words = args.errors[0] if args.errors else ""
        text = explain(args.type, args.name, words)
        engine = get_engine()
        if engine is not None and text != words:
            # not pulumi.log: it waits for the URN from a resource that never gets one
            said = engine_pb2.LogRequest(severity=engine_pb2.ERROR, message=text, urn=args.urn)
            engine.Log(said)  # pyright: ignore[reportUnknownMemberType]  generated stubs
        return False

    return tell

"""Services for a Pulumi program: a plan overlay in a rehearsal, and explanations of the cloud's errors.

Only the language host of the rehearsal sets an overlay. An environment variable would be unsafe: it can stay in a shell
and change a real cluster. Explanations use an error hook, so they work with the real provider, too. The hook never
requests a retry.
"""

from collections.abc import Callable

import pulumi
from pulumi.runtime import register_stack_transformation
from pulumi.runtime.proto import engine_pb2, resource_pb2, resource_pb2_grpc
from pulumi.runtime.settings import get_engine, get_monitor, monitor_supports_feature

from gpucluster.engine.error_attribution import Explain
from gpucluster.plan.model import ClusterPlan

PlanOverlay = Callable[[ClusterPlan], ClusterPlan]

_overlays: list[PlanOverlay] = []  # one process runs one program


def apply_overlays(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan with the changes of this process."""
    for overlay in _overlays:
        plan = overlay(plan)
    return plan


def add_overlay(overlay: PlanOverlay) -> None:
    """Add a function that changes plans in this process."""
    _overlays.append(overlay)


HOOK = "gpucluster:explain-error"


def explain_failures(explain: Explain) -> None:
    """Register an error hook: it explains each resource of this program that cannot be made or changed.

    An engine without error hooks shows only the cloud's message.
    """
    if not _supports_hooks():
        return
    binding = pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(HOOK, _hook(explain))])

    def add_hook(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if not isinstance(args.resource, pulumi.CustomResource):
            return None
        opts = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(hooks=binding))
        return pulumi.ResourceTransformationResult(args.props, opts)

    register_stack_transformation(add_hook)


def _supports_hooks() -> bool:
    """Return whether the engine supports error hooks. Pulumi's mocks report the feature, but have no server for it."""
    real = isinstance(get_monitor(), resource_pb2_grpc.ResourceMonitorStub)
    return real and monitor_supports_feature(resource_pb2.RESOURCE_MONITOR_FEATURE_ERROR_HOOKS)


def _hook(explain: Explain) -> pulumi.ErrorHookFunction:
    def report(args: pulumi.ErrorHookArgs) -> bool:
        message = args.errors[0] if args.errors else ""
        text = explain(args.type, args.name, message)
        engine = get_engine()
        if engine is not None and text != message:
            # not pulumi.log: it waits for the URN of a resource that is never made
            request = engine_pb2.LogRequest(severity=engine_pb2.ERROR, message=text, urn=args.urn)
            engine.Log(request)  # pyright: ignore[reportUnknownMemberType]  generated stubs
        return False

    return report

"""Serve a policy pack to the Pulumi engine (`pulumirpc.Analyzer`). Rules check the whole stack.

Pulumi's policy SDK is not used: it pins a protobuf version that conflicts with the provider's. The protocol is part of
the core SDK.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn, Protocol

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc, plugin_pb2

from gpucluster.engine.offline.model import STACK_TYPE, UNKNOWN, Resource
from gpucluster.engine.offline.wire import shown
from gpucluster.engine.plugin import serve
from gpucluster.engine.policy.evaluation import Finding, evaluate
from gpucluster.engine.policy.model import EnforcementLevel
from gpucluster.engine.policy.pack import Pack, load
from gpucluster.errors import GpuclusterError

_LEVELS = {
    EnforcementLevel.MANDATORY: analyzer_pb2.EnforcementLevel.MANDATORY,
    EnforcementLevel.ADVISORY: analyzer_pb2.EnforcementLevel.ADVISORY,
}


class Context(Protocol):
    """The part of the gRPC context that this module uses. `abort` raises."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn: ...


def serve_pack(folder: Path) -> int:
    """Serve one pack to the engine that started this process."""
    pack = load(folder)
    return serve(lambda server: analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Analyzer(pack), server))


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    """Check the whole stack at the end of a preview and of an update."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack

    def GetPluginInfo(self, request: empty_pb2.Empty, context: Context) -> plugin_pb2.PluginInfo:  # noqa: N802
        return plugin_pb2.PluginInfo(version=self._pack.version)

    def GetAnalyzerInfo(self, request: empty_pb2.Empty, context: Context) -> analyzer_pb2.AnalyzerInfo:  # noqa: N802
        return analyzer_pb2.AnalyzerInfo(
            name=self._pack.name,
            displayName=self._pack.name,
            version=self._pack.version,
            supportsConfig=False,
            policies=[
                analyzer_pb2.PolicyInfo(
                    name=rule.name,
                    displayName=rule.name,
                    description=rule.about,
                    enforcementLevel=_LEVELS[rule.level],
                    policy_type=analyzer_pb2.PolicyType.POLICY_TYPE_STACK,
                )
                for rule in self._pack.rules
            ],
        )

    def Configure(self, request: object, context: Context) -> empty_pb2.Empty:  # noqa: N802
        return empty_pb2.Empty()

    def Analyze(self, request: object, context: Context) -> analyzer_pb2.AnalyzeResponse:  # noqa: N802
        """Return no findings: a rule needs the whole stack, for example to check both directions of a security group."""
        return analyzer_pb2.AnalyzeResponse()

    def Remediate(self, request: object, context: Context) -> analyzer_pb2.RemediateResponse:  # noqa: N802
        """Return no changes: rules only report."""
        return analyzer_pb2.RemediateResponse()

    def AnalyzeStack(  # noqa: N802
        self, request: analyzer_pb2.AnalyzeStackRequest, context: Context
    ) -> analyzer_pb2.AnalyzeResponse:
        try:
            report = evaluate([self._pack], _resources(request.resources))
        except GpuclusterError as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))
        return analyzer_pb2.AnalyzeResponse(diagnostics=[self._diagnostic(f) for f in report.findings])

    def _diagnostic(self, finding: Finding) -> analyzer_pb2.AnalyzeDiagnostic:
        """Report an undecided property as advisory: the protocol has no third level."""
        level = EnforcementLevel.ADVISORY if finding.open else finding.level
        return analyzer_pb2.AnalyzeDiagnostic(
            policyName=finding.rule,
            policyPackName=self._pack.name,
            policyPackVersion=self._pack.version,
            description=next(r.about for r in self._pack.rules if r.name == finding.rule),
            message=f"{finding}\nnext: {finding.next_step}",
            enforcementLevel=_LEVELS[level],
            urn=finding.urn,
        )


def _resources(given: Iterable[analyzer_pb2.AnalyzerResource]) -> list[Resource]:
    """Return resources in the planner's form, with the provider's outputs and the default providers."""
    every = list(given)
    found = {one.urn: _resource(one) for one in every if one.type != STACK_TYPE}
    for one in every:
        provider = one.provider
        if provider.urn and provider.urn not in found:
            found[provider.urn] = Resource(
                urn=provider.urn,
                type=provider.type,
                name=provider.name,
                custom=True,
                properties=shown(provider.properties),
            )
    return list(found.values())


def _resource(one: analyzer_pb2.AnalyzerResource) -> Resource:
    """Convert one resource. Drop unknown properties without a dependency: the provider computes those."""
    links = {name: tuple(sorted(found.urns)) for name, found in one.propertyDependencies.items()}
    given = shown(one.properties).items()
    return Resource(
        urn=one.urn,
        type=one.type,
        name=one.name,
        custom=bool(one.provider.urn),
        parent=one.parent or None,
        dependencies=tuple(sorted(one.dependencies)),
        property_dependencies=links,
        provider=one.provider.urn or None,
        protect=one.options.protect,
        properties={name: value for name, value in given if value != UNKNOWN or name in links},
    )

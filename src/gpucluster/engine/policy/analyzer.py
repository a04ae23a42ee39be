"""A pack as a plugin of the real engine: Pulumi's protocol of analyzers (`pulumirpc.Analyzer`), by rules over the whole stack.

Pulumi's own SDK for packs pins another protobuf than the provider does; the protocol itself is in the SDK that we have.
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
from gpucluster.engine.policy.judge import Finding, judge
from gpucluster.engine.policy.model import Level
from gpucluster.engine.policy.pack import Pack, load
from gpucluster.errors import GpuclusterError

_LEVELS = {
    Level.MANDATORY: analyzer_pb2.EnforcementLevel.MANDATORY,
    Level.ADVISORY: analyzer_pb2.EnforcementLevel.ADVISORY,
}


class Context(Protocol):
    """The part of gRPC's context that we use; `abort` raises."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn: ...


def serve_pack(folder: Path) -> int:
    """Serve one pack to the engine that started us."""
    pack = load(folder)
    return serve(lambda server: analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Analyzer(pack), server))


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    """Rules see the stack whole, at the end of a preview and of an update."""

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
        """One resource alone says too little: whether its group speaks to itself, say."""
        return analyzer_pb2.AnalyzeResponse()

    def Remediate(self, request: object, context: Context) -> analyzer_pb2.RemediateResponse:  # noqa: N802
        """Return nothing: a rule says what is wrong, and changes nothing."""
        return analyzer_pb2.RemediateResponse()

    def AnalyzeStack(  # noqa: N802
        self, request: analyzer_pb2.AnalyzeStackRequest, context: Context
    ) -> analyzer_pb2.AnalyzeResponse:
        try:
            report = judge([self._pack], _resources(request.resources))
        except GpuclusterError as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))
        return analyzer_pb2.AnalyzeResponse(diagnostics=[self._diagnostic(f) for f in report.findings])

    def _diagnostic(self, finding: Finding) -> analyzer_pb2.AnalyzeDiagnostic:
        """What is open is told as an advice: the engine knows no third word."""
        level = Level.ADVISORY if finding.open else finding.level
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
    """As the planner has them, with what the provider answered; default providers stand beside, by their urn."""
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
    """What is unknown and hangs on no other resource is no wish of the program: the provider will compute it."""
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

"""Run the checks of a Kubernetes cluster over kubectl, helm and the AWS API, and store the results."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    need_of,
    unknown,
)
from gpucluster.errors import GpuclusterError
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import REPEAT_S, patiently
from gpucluster.k8s_apply.faults import TransientError
from gpucluster.k8s_apply.status import status
from gpucluster.k8s_apply.steps import Steps
from gpucluster.plan import codec
from gpucluster.validate.cloud_reader import CloudReader
from gpucluster.validate.expectation import Expectation
from gpucluster.validate.results import Result, find, result_of
from gpucluster.validate.validation_pods import ValidationPods


class KubernetesSession:
    """One run. `result` never raises for a fault of the cluster: the fault is a Result."""

    def __init__(
        self, access: Access, steps: Steps, aws: Callable[[str], Any] | None, pods: ValidationPods
    ) -> None:
        self._access, self._steps, self._pods = access, steps, pods
        self._cloud = CloudReader(steps.cluster, aws)
        self._status: str | None = None
        self._patience_s = (
            REPEAT_S  # of the whole run: an API server that stays away holds no check after the first
        )
        self.results: list[Result] = []

    def result(self, expectation: Expectation) -> Result:
        """The result of the expectation. A check that another check blocks has an unknown result with the id of that check."""
        began, check = time.monotonic(), expectation.of
        blocker, step = self._blocker(expectation), ""
        if blocker:
            finding = unknown(f"blocked by {blocker}", check.title)
        else:
            finding, step = self._evaluated(expectation)
        remedy = step or (finding.remedy or check.remedy).replace("{cluster}", self._steps.cluster)
        result = result_of(
            expectation,
            finding,
            machine=expectation.target,
            tier=check.tier,
            remedy=remedy,
            seconds=time.monotonic() - began,
            blocked_by=blocker,
        )
        self.results.append(result)
        return result

    def close(self) -> None:
        """Delete validation's own pods."""
        self._pods.close()

    def _evaluated(self, expectation: Expectation) -> tuple[CheckResult, str]:
        """The finding, and a next step that replaces the check's remedy."""
        check = expectation.of
        try:
            outputs = tuple(self._answer(query) for query in check.query(expectation.want))
            return check.evaluate(check.parse(outputs), expectation.want), ""
        except GpuclusterError as error:
            return unknown(error.message, check.title), error.next_step or ""
        except ParseError as error:
            return unknown(str(error), check.title), ""

    def _answer(self, query: Query) -> QueryOutput:
        match query.at:
            case Location.API:
                return QueryOutput(
                    code=0, stdout=self._patiently(lambda: self._access.kubectl.read(*query.argv))
                )
            case Location.STATUS:
                return QueryOutput(code=0, stdout=self._known_status())
            case Location.CLOUD:
                return QueryOutput(code=0, stdout=json.dumps(self._of_cloud(query.argv), default=str))
            case Location.POD:
                return QueryOutput(code=0, stdout=json.dumps(self._pods.answer(query.argv)))
            case _:
                raise ValueError(f"a Kubernetes cluster has no place {query.at}")

    def _patiently(self, call: Callable[[], str]) -> str:
        """Return the answer of the API server, also if it was away for a moment."""
        clock, began = self._access.clock, self._access.clock.monotonic()
        try:
            return patiently(call, clock, self._access.report, self._patience_s)
        except TransientError:
            self._patience_s = max(0.0, self._patience_s - (clock.monotonic() - began))
            raise

    def _known_status(self) -> str:
        """What `gpucluster k8s status --output json` shows, read once."""
        if self._status is None:
            self._status = json.dumps(codec.to_json(status(self._access, self._steps)))
        return self._status

    def _of_cloud(self, argv: tuple[str, ...]) -> Mapping[str, Any]:
        return {"now": self._access.clock.now().isoformat()} if argv == ("clock",) else self._cloud.read(argv)

    def _blocker(self, expectation: Expectation) -> str:
        """The id of the check that must pass first; empty if there is none."""
        for need in map(need_of, expectation.of.needs):
            before = find(self.results, f"{need.check}[{need.where or expectation.target}]")
            if before is None or before.healthy:
                continue
            if not need.part or need.part in before.culprits:
                return before.blocked_by or before.id
        return ""

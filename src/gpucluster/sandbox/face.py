"""The API of the sandbox: one WSGI application in front of moto.

For each request, in this order: who is it (keys, signature), is it too much (buckets), is an error ordered,
may he (policies), is it ours (instances) or moto's. The reply may get lost after the work is done (T12).
"""

import functools
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpucluster.cloud.model import CloudModel, Refusal
from gpucluster.sandbox import policies, refused, sts, wire, wsgi
from gpucluster.sandbox.backends import Moto
from gpucluster.sandbox.ec2.call import Call, dry_run
from gpucluster.sandbox.ec2.calls import Ec2Calls
from gpucluster.sandbox.ec2.replays import Replays
from gpucluster.sandbox.keys import KeyRing, Principal
from gpucluster.sandbox.permissions import Asked, Permissions
from gpucluster.sandbox.policies import Need, UnknownPolicyPart
from gpucluster.sandbox.queues import Queues
from gpucluster.sandbox.scenario import PREFIX, Scenario
from gpucluster.sandbox.services import budgets, efs, fsx, quotas, shapes
from gpucluster.sandbox.services.shapes import Calls
from gpucluster.sandbox.signature import BadSignature, Flaw, SignedRequest, scope, verify
from gpucluster.sandbox.vault import Vault
from gpucluster.sandbox.wsgi import Environ, Start

_LOG = logging.getLogger(__name__)
_DENIED = {
    "ec2": ("UnauthorizedOperation", 403),
    "json": ("AccessDeniedException", 400),
    "rest-json": ("AccessDeniedException", 403),
}
_RULES = frozenset(
    {
        "AuthorizeSecurityGroupEgress",
        "AuthorizeSecurityGroupIngress",
        "ModifySecurityGroupRules",
        "RevokeSecurityGroupEgress",
        "RevokeSecurityGroupIngress",
    }
)
_PUTS_POLICY = frozenset({"PutRolePolicy", "CreatePolicy", "CreatePolicyVersion"})
_ASK_LATER = frozenset(
    {"RunInstances", "CreateFleet"}
)  # they ask for more, once their templates are resolved
_MAKES_INTERFACES = frozenset({"CreateVpcEndpoint", "ModifyVpcEndpoint", "CreateNetworkInterface"})
_MAKES_KEYS = frozenset({"CreateAccessKey", "CreateLoginProfile"})


def make_app(
    model: CloudModel,
    moto: Moto,
    ring: KeyRing,
    *,
    clock: Callable[[], float],
    wall: Callable[[], float] | None = None,
    console: Callable[[str], bytes] = lambda _: b"",
) -> "Face":
    """The application for the cloud's own tenants; `Face.for_operator` is the one that takes orders too."""
    return Face(model, moto, ring, clock=clock, wall=wall or clock, console=console)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inbound:
    """A request whose caller is known."""

    request: SignedRequest
    service: str
    operation: str
    principal: Principal
    environ: Environ
    number: str
    now: float


class Face:
    """One WSGI application. moto is called one request at a time."""

    def __init__(
        self,
        model: CloudModel,
        moto: Moto,
        ring: KeyRing,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        console: Callable[[str], bytes],
    ) -> None:
        self._model, self._moto, self._ring = model, moto, ring
        self._clock, self._wall = clock, wall
        self._permissions = Permissions(moto, self._tags_of_instance, self._tags_of_group)
        model.foreign = moto.addresses_in
        self._calls = Ec2Calls(model, moto, self._permissions, console)
        self._forward = wsgi.Forward(moto)
        self._queues, self._replays = Queues(), Replays()
        self._vault = Vault(moto, model.timing.secret_s)
        self._services: Mapping[str, Calls] = {
            "elasticfilesystem": efs.calls(model, moto),
            "fsx": fsx.calls(model, moto),
            "budgets": budgets.calls(model),
            "servicequotas": quotas.calls(model),
        }
        self._numbers = itertools.count(1)

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """WSGI."""
        return self._serve(environ, start_response, None)

    def for_operator(self, scenario: Scenario) -> Callable[[Environ, Start], Iterable[bytes]]:
        """The same application, and the scenario's orders under their own path."""
        return lambda environ, start_response: self._serve(environ, start_response, scenario)

    def _serve(self, environ: Environ, start_response: Start, scenario: Scenario | None) -> Iterable[bytes]:
        request = wsgi.read(environ)
        said = scope(request.headers)
        guess = wire.service_guess(request.target, request.headers, request.body)
        service = guess if said is None else said.service
        number = wire.request_id(next(self._numbers))
        try:
            answer = self._answer(request, service, environ, number, scenario)
        except BadSignature as bad:
            answer = wire.identity_refusal(service, bad.flaw, number)
        except Refusal as refusal:
            answer = wire.refusal(service, refusal.code, refusal.message, refusal.status, number)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - the edge: one bad request must not end the cloud
            _LOG.exception("the API failed at %s %s", request.method, request.target.partition("?")[0])
            answer = wire.refusal(
                service, "InternalError", "the sandbox's API failed: see its log", 500, number
            )
        headers = {
            "Content-Length": str(len(answer.body)),
            "Content-Type": answer.content_type,
            "x-amzn-RequestId": number,
            **answer.headers,
        }
        start_response(f"{answer.status} {wsgi.reason(answer.status)}", list(headers.items()))
        return [answer.body]

    def _answer(
        self, request: SignedRequest, service: str, environ: Environ, number: str, scenario: Scenario | None
    ) -> wire.Answer:
        now = self._clock()
        principal = verify(request, self._ring, now=now, wall=self._wall()).principal
        if request.target.startswith(PREFIX):
            if scenario is None or principal.role is not None:
                raise BadSignature(Flaw.UNKNOWN)
            return scenario.answer(request.method, request.target, request.body, now)
        operation = _operation(request, service)
        inbound = _Inbound(
            request=request,
            service=service,
            operation=operation,
            principal=principal,
            environ=environ,
            number=number,
            now=now,
        )
        answer = self._recorded(inbound)
        if self._model.faults.loses(operation):
            wsgi.drop(environ)
        return answer

    def _recorded(self, inbound: _Inbound) -> wire.Answer:
        code = "InternalError"
        try:
            answer = self._ec2(inbound) if inbound.service == "ec2" else self._other(inbound)
            code = "" if answer.status < 400 else str(answer.status)
        except NotImplementedError as error:  # moto's word for it
            code = "UnsupportedOperation"
            raise Refusal(
                code, f"the sandbox has no {inbound.service}:{inbound.operation}{_of(error)}"
            ) from error
        except wsgi.MotoError as crash:
            code = "UnsupportedOperation"
            _LOG.warning("moto has no answer to this %s:%s: %s", inbound.service, inbound.operation, crash)
            text = f"the sandbox has no {inbound.service}:{inbound.operation} with these parameters"
            raise Refusal(code, text) from crash
        except Refusal as refusal:
            code = refusal.code
            raise
        finally:
            self._model.record(inbound.operation, inbound.now, code, inbound.principal.arn)
        return answer

    def _other(self, inbound: _Inbound) -> wire.Answer:
        request, operation = inbound.request, inbound.operation
        self._model.faults.raise_next(operation)
        if inbound.service == "sts":
            return self._sts(inbound)
        if inbound.service == "iam":
            _check_iam(operation, wire.query_fields(request.target, request.body))
        _check_shape(inbound)
        asked = Asked(service=inbound.service, operation=operation, target=request.target, body=request.body)
        self._allow(inbound.principal, inbound.service, self._permissions.needs(asked))
        refused.check(self._moto, inbound.service, operation, request)
        if inbound.service in self._services:
            return self._own(inbound)
        if inbound.service == "secretsmanager":
            forward = partial(self._forward, inbound.environ)
            return self._vault.answer(operation, request.body, inbound.now, forward)
        if inbound.service == "sqs":
            return self._queues.answer(
                operation, request.body, inbound.now, partial(self._forward, inbound.environ)
            )
        answer = self._forward(inbound.environ, request.body)
        if inbound.service == "s3" and answer.status == 404 and operation.startswith("GetObject"):
            self._hide_missing(request, inbound.principal)
        return answer

    def _sts(self, inbound: _Inbound) -> wire.Answer:
        return sts.answer(
            inbound.principal,
            wire.query_fields(inbound.request.target, inbound.request.body),
            inbound.number,
            moto=self._moto,
            ring=self._ring,
            now=inbound.now,
            allow=lambda needs: self._allow(inbound.principal, "sts", needs),
        )

    def _own(self, inbound: _Inbound) -> wire.Answer:
        """A service that moto has no part in."""
        service, operation = inbound.service, inbound.operation
        asked = shapes.parameters(service, operation, inbound.request.target, inbound.request.body)
        known = self._services[service].get(operation)
        if known is None:
            raise Refusal("UnsupportedOperation", f"the sandbox has no {service}:{operation}")
        with self._model.lock:
            result = known(shapes.Call(operation=operation, asked=asked, now=inbound.now))
        status, body = shapes.answer(service, operation, result)
        return wire.Answer(status=status, body=body, content_type="application/x-amz-json-1.1")

    def _ec2(self, inbound: _Inbound) -> wire.Answer:
        request, operation = inbound.request, inbound.operation
        _check_region(request, self._model.region)
        fields = wire.query_fields(request.target, request.body)
        asked = shapes.query_parameters("ec2", operation, fields)
        self._model.admit(operation, inbound.now, unfiltered=not asked.keys() - {"DryRun"})
        if operation not in _ASK_LATER:
            whole = Asked(service="ec2", operation=operation, target=request.target, parameters=asked)
            self._allow(inbound.principal, "ec2", self._permissions.needs(whole))
        call = Call(
            operation=operation,
            fields=fields,
            asked=asked,
            now=inbound.now,
            allow=lambda needs: self._allow(inbound.principal, "ec2", needs),
            forward=lambda changed: self._forward(inbound.environ, wire.quoted(changed)),
        )
        return self._made_once(call, inbound) if operation not in _ASK_LATER else self._made(call, inbound)

    def _made_once(self, call: Call, inbound: _Inbound) -> wire.Answer:
        """A dry run ends here; a call whose client token was used gets what it got before."""
        if call.dry:
            raise dry_run()
        known = self._replays.find(call.operation, call.asked, call.now)
        if known is not None:
            return known
        answer = self._made(call, inbound)
        self._replays.keep(call.operation, call.asked, answer, call.now)
        return answer

    def _made(self, call: Call, inbound: _Inbound) -> wire.Answer:
        result = self._calls.answer(call)
        if result is not None:
            return wire.ec2_answer(call.operation, result, inbound.number)
        answer = self._forward(inbound.environ, inbound.request.body)
        if call.operation in _MAKES_INTERFACES:
            self._calls.settle(inbound.now)
        if call.operation in _RULES:
            self._model.rules_changed[str(call.asked.get("GroupId"))] = inbound.now
        return answer

    def _allow(self, principal: Principal, service: str, needs: Iterable[Need]) -> None:
        if principal.role is None:
            return
        documents = [_parsed(text) for text in self._moto.role_policies(principal.role)]
        for need in needs:
            try:
                allowed = policies.allows(documents, need)
            except UnknownPolicyPart as part:
                raise _denied(service, f"the sandbox does not know {part} in the role's policies") from part
            if not allowed:
                raise _denied(
                    service,
                    f"User: {principal.arn} is not authorized to perform: {need.action} on resource: "
                    f"{need.resource} because no identity-based policy allows the {need.action} action",
                )

    def _hide_missing(self, request: SignedRequest, principal: Principal) -> None:
        """S3 says that a key is missing only to who may list the bucket; others read AccessDenied."""
        bucket, _ = wire.s3_place(request.target)
        self._allow(principal, "s3", [Need(action="s3:ListBucket", resource=f"arn:aws:s3:::{bucket}")])

    def _tags_of_instance(self, instance_id: str) -> Mapping[str, str]:
        with suppress(Refusal):
            return self._model.instance(instance_id, self._clock()).tags
        return {}

    def _tags_of_group(self, name: str) -> Mapping[str, str]:
        with suppress(Refusal):
            return self._model.placements.get(name).tags
        return {}


def _operation(request: SignedRequest, service: str) -> str:
    if service not in wire.SERVICES:
        raise Refusal("UnknownService", f"the sandbox has no service {service!r}")
    if request.target.startswith(("/moto-api", "/latest/", "/favicon.ico")):
        raise Refusal("AccessDenied", "not a part of any AWS API", status=403)  # moto's own doors
    if wire.SERVICES[service] in ("ec2", "query") and request.body and "?" in request.target:
        raise Refusal("InvalidQueryParameter", "two sets of parameters: one in the query, one in the body")
    operation = wire.operation_of(service, request.method, request.target, request.headers, request.body)
    if not operation:
        raise Refusal("MissingAction", "The request names no action")
    return operation


def _of(error: NotImplementedError) -> str:
    """Which filter, where moto says it."""
    return " with this filter" if "filter" in str(error).lower() else ""


def _check_shape(inbound: _Inbound) -> None:
    """By botocore's models; S3's REST in XML is left to moto."""
    request, service, operation = inbound.request, inbound.service, inbound.operation
    if wire.SERVICES[service] == "query":
        shapes.query_parameters(service, operation, wire.query_fields(request.target, request.body))
    elif wire.SERVICES[service] in ("json", "rest-json"):
        shapes.parameters(service, operation, request.target, request.body)


def _check_region(request: SignedRequest, region: str) -> None:
    said = scope(request.headers)
    if said is not None and said.region != region:
        raise Refusal("OptInRequired", f"the sandbox has only the Region {region}", status=401)


def _denied(service: str, text: str) -> Refusal:
    code, status = _DENIED.get(wire.SERVICES[service], ("AccessDenied", 403))
    return Refusal(code, text, status=status)


def _check_iam(operation: str, fields: Mapping[str, str]) -> None:
    if operation in _MAKES_KEYS:
        raise Refusal(
            "AccessDenied",
            f"the sandbox has no iam:{operation}: it knows only keys that it hands out",
            status=403,
        )
    if operation not in _PUTS_POLICY:
        return
    try:
        policies.check(policies.parse(fields.get("PolicyDocument", "")))
    except json.JSONDecodeError as error:
        raise Refusal("MalformedPolicyDocument", f"The policy is no JSON: {error}") from error
    except UnknownPolicyPart as part:
        raise Refusal("MalformedPolicyDocument", f"the sandbox cannot judge {part}") from part


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> Mapping[str, Any]:
    return policies.parse(text)

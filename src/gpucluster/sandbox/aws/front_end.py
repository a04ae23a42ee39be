"""The API front end: one WSGI application in front of moto.

Each request passes these steps in this order: signature and key, token buckets, injected errors, rights of the caller,
then the sandbox's own call or moto's. A scenario can drop the reply after the work is done (T12).
"""

import functools
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpucluster.sandbox.aws import ASKED, protocols, rights, shapes, tagging, wsgi
from gpucluster.sandbox.aws.budgets import calls as budgets
from gpucluster.sandbox.aws.credentials import KeyRing, Principal
from gpucluster.sandbox.aws.ec2.call import Ec2Call, creation_tags, dry_run
from gpucluster.sandbox.aws.ec2.calls import Ec2Calls
from gpucluster.sandbox.aws.ec2.replays import Replays
from gpucluster.sandbox.aws.ec2.rights import Ec2Rights
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.efs import calls as efs
from gpucluster.sandbox.aws.eks import calls as eks
from gpucluster.sandbox.aws.eks import rights as eks_rights
from gpucluster.sandbox.aws.events import rights as events
from gpucluster.sandbox.aws.fsx import calls as fsx
from gpucluster.sandbox.aws.iam import calls as iam
from gpucluster.sandbox.aws.iam import policies
from gpucluster.sandbox.aws.iam.policies import Need, UnknownPolicyPart
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.logs import rights as logs
from gpucluster.sandbox.aws.moto_state import Moto
from gpucluster.sandbox.aws.rights import ApiRequest
from gpucluster.sandbox.aws.s3 import calls as s3
from gpucluster.sandbox.aws.scenario import Scenario
from gpucluster.sandbox.aws.secretsmanager import calls as secretsmanager
from gpucluster.sandbox.aws.servicequotas import calls as quotas
from gpucluster.sandbox.aws.shapes import Calls
from gpucluster.sandbox.aws.signature import BadSignature, Flaw, SignedRequest, scope, verify
from gpucluster.sandbox.aws.sqs import calls as sqs
from gpucluster.sandbox.aws.ssm import calls as ssm
from gpucluster.sandbox.aws.ssm.state import Agents, no_machines
from gpucluster.sandbox.aws.sts import calls as sts
from gpucluster.sandbox.aws.wsgi import Environ, Start
from gpucluster.sandbox.paths import SCENARIO_PREFIX

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
_TEMPLATE_ID = re.compile(rb"<launchTemplateId>([^<]+)</launchTemplateId>")
_ANY_REGION = frozenset({"budgets", "iam", "s3", "sts"})  # their clients may sign for us-east-1
_CHECKED_LATER = frozenset(
    {"RunInstances", "CreateFleet"}
)  # their rights depend on the resolved launch template
_MAKES_INTERFACES = frozenset({"CreateVpcEndpoint", "ModifyVpcEndpoint", "CreateNetworkInterface"})
_RIGHTS: Mapping[str, Callable[[ApiRequest, Moto], Iterable[Need]]] = {  # the rights of EC2 are in Ec2Rights
    "events": events.rights,
    "iam": iam.rights,
    "kms": keys.rights,
    "logs": logs.rights,
    "s3": s3.rights,
    "secretsmanager": secretsmanager.rights,
    "sqs": sqs.rights,
}
_OF_MODEL: Mapping[str, Callable[[ApiRequest, CloudModel, Moto, float], Iterable[Need]]] = {
    "budgets": budgets.rights,
    "eks": eks_rights.rights,
    "elasticfilesystem": efs.rights,
    "fsx": fsx.rights,
    "ssm": ssm.rights,
}
_REFUSALS: Mapping[str, Callable[[Moto, str, SignedRequest], None]] = {
    "iam": iam.check,
    "s3": s3.check,
    "secretsmanager": secretsmanager.check,
}


def make_app(
    model: CloudModel,
    moto: Moto,
    ring: KeyRing,
    *,
    clock: Callable[[], float],
    wall: Callable[[], float] | None = None,
    console: Callable[[str], bytes] = lambda _: b"",
    agents: Agents = no_machines,
) -> "FrontEnd":
    """The application for clients of the cloud; `FrontEnd.for_operator` also takes scenario commands."""
    return FrontEnd(model, moto, ring, clock=clock, wall=wall or clock, console=console, agents=agents)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inbound:
    """A request with a verified caller."""

    request: SignedRequest
    service: str
    operation: str
    principal: Principal
    environ: Environ
    number: str
    now: float


def _logged(inbound: _Inbound) -> str:
    """The action as the log has it: a dry run changes nothing, so it is not logged as the call."""
    request = inbound.request
    if inbound.service != "ec2" or b"DryRun" not in request.body:
        return inbound.operation
    dry = protocols.query_fields(request.target, request.body).get("DryRun", "").lower() == "true"
    return f"{inbound.operation} (dry run)" if dry else inbound.operation


class FrontEnd:
    """One WSGI application. It calls moto for one request at a time."""

    def __init__(
        self,
        model: CloudModel,
        moto: Moto,
        ring: KeyRing,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        console: Callable[[str], bytes],
        agents: Agents,
    ) -> None:
        self._model, self._moto, self._ring = model, moto, ring
        self._clock, self._wall = clock, wall
        self._rights = Ec2Rights(
            moto,
            self._tags_of,
            self._tags_of_group,
            self._associated,
            model.owner_of_reservation,
            place_of=self._place_of,
        )
        model.foreign, model.reserved = moto.addresses_in, moto.reserved_in
        self._calls = Ec2Calls(model, moto, self._rights, console)
        self._forward = wsgi.Forward(moto)
        self._queues, self._replays = sqs.Queues(), Replays()
        self._secrets = secretsmanager.DeletedNames(moto, model.timing.secret_s)
        self._services: Mapping[str, Calls] = {
            "elasticfilesystem": efs.calls(model, moto),
            "fsx": fsx.calls(model, moto),
            "budgets": budgets.calls(model),
            "eks": eks.calls(model, moto),
            "servicequotas": quotas.calls(model),
        }
        self._run_command = ssm.calls(model, moto, agents, self._granted)  # moto has the rest of the service
        self._numbers = itertools.count(1)

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """Serve one request of a client."""
        return self._serve(environ, start_response, None)

    def for_operator(self, scenario: Scenario) -> Callable[[Environ, Start], Iterable[bytes]]:
        """The same application, with the scenario commands under their own path."""
        return lambda environ, start_response: self._serve(environ, start_response, scenario)

    def _serve(self, environ: Environ, start_response: Start, scenario: Scenario | None) -> Iterable[bytes]:
        request = wsgi.read(environ)
        credential = scope(request.headers)
        guess = protocols.service_guess(request.target, request.headers, request.body)
        service = guess if credential is None else credential.service
        number = protocols.request_id(next(self._numbers))
        protocol = protocols.protocol_of(service, request.target, request.headers, request.body)
        try:
            answer = self._answer(request, service, environ, number, scenario)
        except BadSignature as bad:
            answer = protocols.identity_refusal(protocol, bad.flaw, number)
        except Refusal as refusal:
            answer = protocols.refusal(protocol, refusal.code, refusal.message, refusal.status, number)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - the edge: one bad request must not end the cloud
            _LOG.exception("the API failed at %s %s", request.method, request.target.partition("?")[0])
            answer = protocols.refusal(
                protocol, "InternalError", "the sandbox's API failed: see its log", 500, number
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
    ) -> protocols.Answer:
        now = self._clock()
        clocks = self._model.switches.clocks
        principal = verify(request, self._ring, now=now, wall=self._wall(), clocks=clocks).principal
        if request.target == ASKED:
            return self._asked(request, principal)
        if request.target.startswith(SCENARIO_PREFIX):
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

    def _asked(self, request: SignedRequest, principal: Principal) -> protocols.Answer:
        """Refuse rights that the caller lacks. The sandbox's provider asks for calls that only the upstream provider makes."""
        needs = rights.asked_needs(request.body, self._moto.region)
        self._allow(principal, "s3", needs)
        return protocols.Answer(status=200, body=b"{}", content_type="application/json")

    def _recorded(self, inbound: _Inbound) -> protocols.Answer:
        code = "InternalError"
        try:
            answer = self._ec2(inbound) if inbound.service == "ec2" else self._other(inbound)
            code = "" if answer.status < 400 else str(answer.status)
        except NotImplementedError as error:  # moto raises this for a call that it lacks
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
            self._model.record(_logged(inbound), inbound.now, code, inbound.principal.arn)
        return answer

    def _other(self, inbound: _Inbound) -> protocols.Answer:
        request, operation = inbound.request, inbound.operation
        self._model.faults.raise_next(operation)
        _check_scope(inbound, self._model.region)
        if inbound.service == "sts":
            return self._sts(inbound)
        if inbound.service == "iam":
            fields = protocols.query_fields(request.target, request.body)
            iam.check_caller(operation, fields, inbound.principal)
            iam.check_document(operation, fields)
        _check_shape(inbound)
        asked = ApiRequest(
            service=inbound.service,
            operation=operation,
            region=self._moto.region,
            target=request.target,
            body=request.body,
            tagged="x-amz-tagging" in request.headers,
        )
        of_model = _OF_MODEL.get(inbound.service)
        if of_model is not None:
            needs = list(of_model(asked, self._model, self._moto, inbound.now))
        else:
            needs = list(_RIGHTS.get(inbound.service, rights.on_anything)(asked, self._moto))
        self._allow(inbound.principal, inbound.service, needs)
        tagging.check(inbound.service, operation, request)
        if inbound.service in _REFUSALS:
            _REFUSALS[inbound.service](self._moto, operation, request)
        if inbound.service in self._services:
            return self._own(inbound, self._services[inbound.service])
        if inbound.service == "ssm" and operation in self._run_command:
            return self._own(inbound, self._run_command)
        if inbound.service == "secretsmanager":
            forward = partial(self._forward, inbound.environ)
            return self._secrets.answer(operation, request.body, inbound.now, forward)
        if inbound.service == "sqs":
            forward = partial(self._forward, inbound.environ)
            answer = self._queues.answer(operation, request.body, inbound.now, forward)
            return sqs.at_host(operation, answer, request.headers.get("host", ""))
        answer = self._forward(inbound.environ, request.body)
        if inbound.service == "s3" and answer.status == 404 and operation.startswith("GetObject"):
            self._hide_missing(request, inbound.principal)
        return answer

    def _sts(self, inbound: _Inbound) -> protocols.Answer:
        return sts.answer(
            inbound.principal,
            protocols.query_fields(inbound.request.target, inbound.request.body),
            inbound.number,
            moto=self._moto,
            ring=self._ring,
            now=inbound.now,
            allow=lambda needs: self._allow(inbound.principal, "sts", needs),
        )

    def _own(self, inbound: _Inbound, calls: Calls) -> protocols.Answer:
        """A call of a service that moto does not serve here."""
        service, operation = inbound.service, inbound.operation
        asked = shapes.parameters(service, operation, inbound.request.target, inbound.request.body)
        known = calls.get(operation)
        if known is None:
            raise Refusal("UnsupportedOperation", f"the sandbox has no {service}:{operation}")
        who = inbound.principal
        caller = who.arn if who.role is None else self._moto.role_arn(who.role)
        with self._model.lock:
            result = known(
                shapes.ServiceCall(operation=operation, asked=asked, now=inbound.now, caller=caller)
            )
        status, body = shapes.answer(service, operation, result)
        return protocols.Answer(status=status, body=body, content_type="application/x-amz-json-1.1")

    def _ec2(self, inbound: _Inbound) -> protocols.Answer:
        request, operation = inbound.request, inbound.operation
        _check_region(request, self._model.region)
        fields = protocols.query_fields(request.target, request.body)
        asked = shapes.query_parameters("ec2", operation, fields)
        self._model.admit(operation, inbound.now, unfiltered=not asked.keys() - {"DryRun"})
        if operation not in _CHECKED_LATER:
            whole = ApiRequest(
                service="ec2",
                operation=operation,
                region=self._moto.region,
                target=request.target,
                parameters=asked,
            )
            self._allow(inbound.principal, "ec2", self._rights.of(whole))
        call = Ec2Call(
            operation=operation,
            fields=fields,
            asked=asked,
            now=inbound.now,
            allow=lambda needs: self._allow(inbound.principal, "ec2", needs),
            forward=lambda changed: self._forward(inbound.environ, protocols.quoted(changed)),
        )
        return (
            self._made_once(call, inbound) if operation not in _CHECKED_LATER else self._made(call, inbound)
        )

    def _made_once(self, call: Ec2Call, inbound: _Inbound) -> protocols.Answer:
        """End a dry run; return the earlier answer of a client token that is known."""
        if call.dry:
            raise dry_run()
        known = self._replays.find(call.operation, call.asked, call.now)
        if known is not None:
            return known
        answer = self._made(call, inbound)
        self._replays.keep(call.operation, call.asked, answer, call.now)
        return answer

    def _made(self, call: Ec2Call, inbound: _Inbound) -> protocols.Answer:
        result = self._calls.answer(call)
        if result is not None:
            return protocols.ec2_answer(call.operation, result, inbound.number)
        if call.operation == "CreateLaunchTemplate":
            return self._template(call)
        answer = self._forward(inbound.environ, inbound.request.body)
        if call.operation in _MAKES_INTERFACES:
            self._calls.settle(inbound.now)
        if call.operation in _RULES:
            self._model.rules_changed[str(call.asked.get("GroupId"))] = inbound.now
        return answer

    def _template(self, call: Ec2Call) -> protocols.Answer:
        """Create the template, then tag it: moto would add the tags of the request to the template's data."""
        tags = creation_tags(call, "launch-template")
        answer = call.forward({k: v for k, v in call.fields.items() if not k.startswith("TagSpecification")})
        found = _TEMPLATE_ID.search(answer.body)
        if answer.status == 200 and found is not None:
            self._moto.tag(found[1].decode(), tags)
        return answer

    def _allow(self, principal: Principal, service: str, needs: Iterable[Need]) -> None:
        """Refuse a need that the role's policies do not allow, or that its permission boundary does not."""
        if principal.role is None:
            return
        documents = [_parsed(text) for text in self._moto.role_policies(principal.role)]
        bound = self._moto.role_boundary(principal.role)
        limit = None if bound is None else [_parsed(bound[1])]
        for need in needs:
            try:
                allowed = policies.allows(documents, need)
                within = limit is None or policies.allows(limit, need)
            except UnknownPolicyPart as part:
                raise _denied(service, f"the sandbox does not know {part} in the role's policies") from part
            if not (allowed and within):
                why = "identity-based policy" if not allowed else "permissions boundary"
                raise _denied(
                    service,
                    f"User: {principal.arn} is not authorized to perform: {need.action} on resource: "
                    f"{need.resource} because no {why} allows the {need.action} action",
                )

    def _granted(self, role: str, need: Need) -> bool:
        """Whether the policies of a machine's role allow it. A part of them that the sandbox does not know allows nothing."""
        with suppress(UnknownPolicyPart):
            bound = self._moto.role_boundary(role)
            within = bound is None or policies.allows([_parsed(bound[1])], need)
            return within and policies.allows([_parsed(t) for t in self._moto.role_policies(role)], need)
        return False

    def _hide_missing(self, request: SignedRequest, principal: Principal) -> None:
        """S3 reports a missing key only to a caller that may list the bucket; others read AccessDenied."""
        bucket, _ = protocols.s3_place(request.target)
        self._allow(principal, "s3", [Need(action="s3:ListBucket", resource=f"arn:aws:s3:::{bucket}")])

    def _tags_of(self, resource_id: str) -> Mapping[str, str]:
        """The tags of any EC2 resource with an id."""
        now = self._clock()
        if resource_id.startswith("i-"):
            with suppress(Refusal):
                return self._model.instance(resource_id, now).tags
            return {}
        held = self._model.tags_of(resource_id)
        if held is not None:
            return held
        if resource_id.startswith("vol-"):
            roots = [i for i in self._model.describe((), now) if i.volume_id == resource_id]
            return roots[0].spec.volume_tags if roots else {}
        return self._moto.tags(resource_id)

    def _associated(self, association: str) -> Sequence[str]:
        """The ends of an association that have rights of their own: of a route table, an address or a profile."""
        if association.startswith("eipassoc-"):
            with suppress(Refusal):
                return [self._model.addresses.bound(association).id]
        if association.startswith("iip-assoc-"):
            return [f"i-{association.removeprefix('iip-assoc-')}"]
        return self._moto.ends_of(association)

    def _place_of(self, interface: str) -> tuple[str, str] | None:
        """The subnet and the VPC of an interface that exists."""
        ours = ((i.id, i.subnet.id, i.subnet.vpc) for i in self._model.interfaces(self._clock()))
        every = (*ours, *self._moto.interfaces())
        return next(((subnet, vpc) for name, subnet, vpc in every if name == interface), None)

    def _tags_of_group(self, name: str) -> Mapping[str, str]:
        with suppress(Refusal):
            return self._model.placements.get(name).tags
        return {}


def _operation(request: SignedRequest, service: str) -> str:
    if service not in protocols.SERVICES:
        raise Refusal("UnknownService", f"the sandbox has no service {service!r}")
    if request.target.startswith(("/moto-api", "/latest/", "/favicon.ico")):
        raise Refusal("AccessDenied", "not a part of any AWS API", status=403)  # moto's own pages
    if protocols.SERVICES[service] in ("ec2", "query") and request.body and "?" in request.target:
        raise Refusal("InvalidQueryParameter", "two sets of parameters: one in the query, one in the body")
    operation = protocols.operation_of(service, request.method, request.target, request.headers, request.body)
    if not operation:
        raise Refusal("MissingAction", "The request names no action")
    return operation


def _of(error: NotImplementedError) -> str:
    """The filter, where moto names it."""
    return " with this filter" if "filter" in str(error).lower() else ""


def _check_shape(inbound: _Inbound) -> None:
    """Check the request against botocore's model; moto checks S3's REST."""
    request, service, operation = inbound.request, inbound.service, inbound.operation
    if protocols.SERVICES[service] == "query":
        shapes.query_parameters(service, operation, protocols.query_fields(request.target, request.body))
    elif protocols.SERVICES[service] in ("json", "rest-json"):
        shapes.parameters(service, operation, request.target, request.body)


def _check_region(request: SignedRequest, region: str) -> None:
    credential = scope(request.headers)
    if credential is not None and credential.region != region:
        raise Refusal("OptInRequired", f"the sandbox has only the Region {region}", status=401)


def _check_scope(inbound: _Inbound, region: str) -> None:
    """Refuse a signature for another Region, as an endpoint of AWS does. moto would keep an account in each Region."""
    credential = scope(inbound.request.headers)
    if credential is not None and credential.region != region and inbound.service not in _ANY_REGION:
        text = f"Credential should be scoped to a valid region: the sandbox has only the Region {region}"
        raise Refusal("InvalidSignatureException", text)


def _denied(service: str, text: str) -> Refusal:
    code, status = _DENIED.get(protocols.SERVICES[service], ("AccessDenied", 403))
    return Refusal(code, text, status=status)


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> Mapping[str, Any]:
    return policies.parse(text)

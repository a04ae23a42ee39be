"""Tests of the provider protocol: rejected names and keys, and incomplete resources."""

from importlib.metadata import version
from typing import Any, NoReturn

import grpc
import pytest
from botocore.exceptions import ClientError
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import status_pb2

from gpucluster.engine.aws_account import code_of, is_absent
from gpucluster.engine.values import from_struct, to_struct
from gpucluster.sandbox.provider.cloud import Cloud, StoppedError, is_in_use, is_not_yet
from gpucluster.sandbox.provider.crud import Crud, HalfMadeError
from gpucluster.sandbox.provider.engine_log import EngineLog
from gpucluster.sandbox.provider.schema import ResourceType, computed, updates
from gpucluster.sandbox.provider.servicer import AwsStandIn
from gpucluster.sandbox.provider.table import TYPES


class AbortedError(Exception):
    pass


class FakeContext:
    """A gRPC context for the servicer."""

    def __init__(self) -> None:
        self.trailing: Any = ()

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise AbortedError(f"{code.name}: {details}")

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        self.trailing = trailing_metadata


def servicer() -> AwsStandIn:
    made = AwsStandIn()
    args = to_struct({"region": "us-east-1", "defaultTags": '{"tags": {"gpucluster:cluster": "burst"}}'})
    made.Configure(pb.ConfigureRequest(args=args), FakeContext())
    return made


def test_version_equals_installed_pulumi_aws() -> None:
    info = servicer().GetPluginInfo(empty_pb2.Empty(), FakeContext())
    assert info.version == version("pulumi-aws")


def test_unknown_type_is_rejected_by_name() -> None:
    request = pb.CheckRequest(type="aws:ec2/vpnGateway:VpnGateway", news=to_struct({}))
    (failure,) = servicer().Check(request, FakeContext()).failures
    assert "does not know the resource type 'aws:ec2/vpnGateway:VpnGateway'" in failure.reason
    assert "table.py" in failure.reason


def test_unknown_property_is_rejected_by_name() -> None:
    request = pb.CheckRequest(type="aws:ec2/vpc:Vpc", news=to_struct({"ipv6CidrBlok": "x"}))
    (failure,) = servicer().Check(request, FakeContext()).failures
    assert failure.property == "ipv6CidrBlok"


@pytest.mark.parametrize("verb", ["Create", "Read", "Update", "Delete", "Diff"])
def test_unknown_type_fails_every_operation(verb: str) -> None:
    request = getattr(pb, f"{verb}Request")(type="aws:x/y:Z")
    with pytest.raises(AbortedError, match=r"UNIMPLEMENTED: .*'aws:x/y:Z'"):
        getattr(servicer(), verb)(request, FakeContext())


def test_keys_in_configuration_are_rejected() -> None:
    request = pb.CheckRequest(news=to_struct({"region": "r", "secretKey": "s", "profile": "p"}))
    failures = {f.property: f.reason for f in servicer().CheckConfig(request, FakeContext()).failures}
    assert failures.keys() == {"profile", "secretKey"}
    assert "environment" in failures["secretKey"]


def test_another_region_is_another_provider() -> None:
    olds, news = to_struct({"region": "a"}), to_struct({"region": "b"})
    assert list(AwsStandIn().DiffConfig(pb.DiffRequest(olds=olds, news=news), FakeContext()).replaces) == [
        "region"
    ]


def test_preview_makes_no_cloud_call() -> None:
    request = pb.CreateRequest(type="aws:ec2/vpc:Vpc", properties=to_struct({"cidrBlock": "c"}), preview=True)
    answer = servicer().Create(request, FakeContext())
    assert (answer.id, from_struct(answer.properties)["cidrBlock"]) == ("", "c")


def test_unconfigured_provider_is_an_error() -> None:
    with pytest.raises(AbortedError, match="FAILED_PRECONDITION"):
        AwsStandIn().Check(pb.CheckRequest(type="aws:ec2/vpc:Vpc"), FakeContext())


def test_unknown_data_source_is_rejected_by_name() -> None:
    with pytest.raises(AbortedError, match=r"unknown data source 'aws:ec2/getVpcs:getVpcs'"):
        servicer().Invoke(pb.InvokeRequest(tok="aws:ec2/getVpcs:getVpcs"), FakeContext())


# --- a resource that was created and did not settle -------------------------------------------
def error(code: str, text: str = "text") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}}, "Call")


def a_kind(**change: Any) -> ResourceType:
    def read(*_: Any) -> dict[str, Any]:
        return {"Name": "seen", "Arn": "arn"}

    calls: dict[str, Any] = {"create": lambda _: "id-1", "read": read, "delete": lambda _: None}
    properties = {"name": updates("Name"), "arn": computed("Arn")}
    return ResourceType(name="test:x/y:Z", properties=properties, **(calls | change))


def raising(failure: Exception) -> Any:
    def call(*_: Any) -> NoReturn:
        raise failure

    return call


def crud() -> Crud:
    return Crud(Cloud("us-east-1"))


def test_unsettled_resource_keeps_id() -> None:
    with pytest.raises(HalfMadeError, match="AttributeRefused") as caught:
        crud().create(a_kind(complete=raising(error("AttributeRefused"))), {"name": "n"}, 1)
    assert caught.value.id == "id-1"


def test_incomplete_resource_is_reported_with_id_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = a_kind(complete=raising(error("AttributeRefused")))
    monkeypatch.setattr("gpucluster.sandbox.provider.servicer.TYPES", {kind.name: kind})
    context = FakeContext()
    with pytest.raises(AbortedError):
        servicer().Create(pb.CreateRequest(type=kind.name, properties=to_struct({"name": "n"})), context)
    ((key, value),) = context.trailing
    status = status_pb2.Status.FromString(value)
    detail = pb.ErrorResourceInitFailed()
    packed: any_pb2.Any = status.details[0]
    assert packed.Unpack(detail)
    assert (key, detail.id) == ("grpc-status-details-bin", "id-1")
    assert "AttributeRefused" in detail.reasons[0]
    assert from_struct(detail.inputs) == {"name": "n"}


def test_failed_update_reports_current_state() -> None:
    with pytest.raises(HalfMadeError) as caught:
        crud().update(
            a_kind(update=raising(error("X"))), "id-1", olds={"name": "a"}, news={"name": "b"}, seconds=1
        )
    assert caught.value.seen.outputs == {"name": "seen", "arn": "arn"}


# --- retries ---------------------------------------------------------------------------------
def failing_first(times: int, failure: Exception) -> Any:
    left = [times]

    def call(_: Any) -> str:
        if left[0]:
            left[0] -= 1
            raise failure
        return "id-1"

    return call


def test_t43_deletion_waits_for_dependents() -> None:
    crud().delete(a_kind(delete=failing_first(2, error("DependencyViolation"))), "id-1", {}, 5)


def test_deletion_has_timeout() -> None:
    with pytest.raises(ClientError, match="DependencyViolation"):
        crud().delete(a_kind(delete=failing_first(99, error("DependencyViolation"))), "id-1", {}, 0.15)


def test_missing_resource_counts_as_deleted() -> None:
    crud().delete(a_kind(delete=raising(error("InvalidVpcID.NotFound"))), "id-1", {}, 1)


def test_t36_creation_waits_for_new_profile() -> None:
    young = error(
        "InvalidParameterValue",
        "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
    )
    made, outputs = crud().create(a_kind(create=failing_first(1, young)), {}, 5)
    assert (made, outputs["arn"]) == ("id-1", "arn")


def test_wait_is_reported_beside_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    def create(call: Any) -> str:
        call.report_progress("waiting for the address 10.0.0.10")
        return "id-1"

    kind = a_kind(create=create)
    monkeypatch.setattr("gpucluster.sandbox.provider.servicer.TYPES", {kind.name: kind})
    made = AwsStandIn(lambda urn, text: told.append((urn, text)))
    made.Configure(pb.ConfigureRequest(args=to_struct({"region": "us-east-1"})), FakeContext())
    made.Create(
        pb.CreateRequest(type=kind.name, urn="urn:x", properties=to_struct({"name": "n"})), FakeContext()
    )
    assert told == [("urn:x", "waiting for the address 10.0.0.10")]


def test_missing_engine_log_does_not_stop_operation() -> None:
    EngineLog("127.0.0.1:1")("urn:x", "waiting")


def test_cancel_ends_a_wait_at_once() -> None:
    made = crud()
    made.cloud.stopped.set()
    with pytest.raises(StoppedError):
        made.delete(a_kind(delete=failing_first(99, error("DependencyViolation"))), "id-1", {}, 600)


def test_missing_resource_reads_as_missing() -> None:
    assert crud().read(a_kind(read=raising(error("NoSuchEntity"))), "id-1", {}, {}) is None
    assert crud().read(a_kind(read=lambda *_: None), "id-1", {}, {}) is None


@pytest.mark.parametrize(
    ("failure", "absent", "in_use", "young"),
    [
        (error("InvalidGroup.NotFound"), True, False, True),
        (error("ResourceNotFoundException"), True, False, False),
        (error("DependencyViolation"), False, True, False),
        (error("DeleteConflict"), False, True, False),
        (error("MalformedPolicyDocument", "Invalid principal in policy"), False, False, True),
        (error("MalformedPolicyDocument", "Syntax errors in policy"), False, False, False),
        (
            error("InvalidRequestException", "a secret with this name is already scheduled for deletion"),
            False,
            False,
            True,
        ),
        (error("InvalidRequestException", "You must provide a value"), False, False, False),
        (error("OperationAborted"), False, False, True),
        (error("QueueDeletedRecently"), False, False, True),
        (error("UnauthorizedOperation"), False, False, False),
        (error("InsufficientInstanceCapacity"), False, False, False),
    ],
    ids=lambda value: code_of(value) if isinstance(value, ClientError) else str(value),
)
def test_errors_are_classified(failure: ClientError, absent: bool, in_use: bool, young: bool) -> None:
    assert (is_absent(failure), is_in_use(failure), is_not_yet(failure)) == (absent, in_use, young)


@pytest.mark.parametrize("kind", TYPES.values(), ids=lambda k: k.name)
def test_row_is_complete(kind: ResourceType) -> None:
    changes = {p.change for name, p in kind.properties.items() if not name.startswith("tags")}
    assert (
        "update" not in changes
        or kind.update is not None
        or {n for n, p in kind.properties.items() if p.change == "update" and p.api is not None} == set()
    ), "a property that changes in place needs an update"
    assert not kind.tagged or kind.update is not None
    if kind.autoname:
        assert kind.properties[kind.autoname.property].change == "replace"

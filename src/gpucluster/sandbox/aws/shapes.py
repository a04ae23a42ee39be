"""Requests and answers of the JSON protocols by botocore's models. A request that does not fit is refused with the name of the field."""

import base64
import datetime
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

from gpucluster.sandbox.aws.ec2.state.values import Refusal

# service name in a signature -> botocore's name, where they differ
_BOTOCORE = {"elasticfilesystem": "efs", "servicequotas": "service-quotas"}
_COMMON = frozenset({"Action", "Version"})
# EC2 gets new values every week, and has its own codes for unknown ones
_OPEN_ENUMS = frozenset({"InstanceType", "RequestInstanceType"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCall:
    """A request of one operation with typed and valid parameters."""

    operation: str
    asked: Mapping[str, Any]
    now: float
    caller: str = ""  # ARN of the user or the role


Calls = Mapping[str, Callable[[ServiceCall], Mapping[str, Any]]]


def botocore_name(service: str) -> str:
    """botocore's name of a service, from its name in a signature."""
    return _BOTOCORE.get(service, service)


@functools.cache
def operation_model(service: str, operation: str) -> Any:
    """botocore's model of an operation; a Refusal if the service does not have it."""
    from botocore.model import OperationNotFoundError  # noqa: PLC0415

    try:
        return _service(service).operation_model(operation)
    except OperationNotFoundError as error:
        code = "InvalidAction" if service in ("ec2", "iam") else "UnknownOperationException"
        raise Refusal(code, f"{service} has no operation {operation!r}") from error


def rest_operation(service: str, method: str, target: str) -> str:
    """The operation of a method and a path; empty if there is none."""
    path = target.partition("?")[0]
    for name, verb, pattern in _ways(service):
        if verb == method and pattern.fullmatch(path):
            return name
    return ""


def parameters(service: str, operation: str, target: str, body: bytes) -> dict[str, Any]:
    """The parameters, typed as in botocore; a Refusal if they do not fit the model."""
    model: Any = operation_model(service, operation)
    shape: Any = model.input_shape
    if shape is None:
        return {}
    asked = _typed(shape, _document(body))
    if model.service_model.metadata["protocol"] == "rest-json":
        asked |= _from_path(model, target)
    check(shape, asked)
    return asked


def query_parameters(service: str, operation: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a query-protocol request; an unknown field is refused."""
    from moto.core.parse import EC2QueryParser, QueryParser  # noqa: PLC0415 - moto is loaded once, by the sandbox

    model: Any = operation_model(service, operation)
    parser: Any = (EC2QueryParser if service == "ec2" else QueryParser)(model)
    try:
        asked: dict[str, Any] = parser.parse({"values": fields})
    except ValueError as error:
        raise Refusal("InvalidParameterValue", f"a parameter cannot be read: {error}") from error
    if model.input_shape is None:
        return {}
    _check_query(model.input_shape, asked)
    unknown = sorted(fields.keys() - _fields_of(service, model, asked) - _COMMON)
    if unknown:
        raise Refusal("UnknownParameter", f"The parameter {unknown[0]} is not recognized")
    return asked


def _check_query(shape: Any, asked: Mapping[str, Any]) -> None:
    missing = [name for name in shape.required_members if name not in asked]
    if missing:
        raise Refusal("MissingParameter", f"The request must contain the parameter {missing[0]}")
    try:
        check(shape, asked)
    except Refusal as refusal:
        raise Refusal("InvalidParameterValue", refusal.message) from refusal


def _fields_of(service: str, model: Any, asked: Mapping[str, Any]) -> frozenset[str]:
    """The query fields of these parameters."""
    request: Any = _serializer(service).serialize_to_request(asked, model)
    return frozenset(request["body"])


@functools.cache
def _serializer(service: str) -> Any:
    from botocore.serialize import EC2Serializer, QuerySerializer  # noqa: PLC0415

    return EC2Serializer() if service == "ec2" else QuerySerializer()


def check(shape: Any, asked: Mapping[str, Any]) -> None:
    """Refuse parameters that do not fit botocore's model."""
    from botocore.validate import ParamValidator  # noqa: PLC0415

    validator: Any = ParamValidator()
    report: Any = validator.validate(asked, shape)
    if report.has_errors():
        raise Refusal("ValidationException", str(report.generate_report()))
    for place, constraint in _out_of_bounds(shape, asked, ""):
        raise Refusal("ValidationException", f"Value at '{place}' failed to satisfy constraint: {constraint}")


def _out_of_bounds(shape: Any, value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Check what botocore's validator does not: values of enumerations, and upper bounds."""
    kind = shape.type_name
    if kind == "structure":
        for name, one in cast(Mapping[str, Any], value).items():
            yield from _out_of_bounds(shape.members[name], one, f"{place}.{name}".lstrip("."))
    elif kind == "list":
        for number, one in enumerate(value):
            yield from _out_of_bounds(shape.member, one, f"{place}.{number}")
    elif kind == "map":
        for name, one in cast(Mapping[str, Any], value).items():
            yield from _out_of_bounds(shape.value, one, f"{place}.{name}")
    enum = () if shape.name in _OPEN_ENUMS else getattr(shape, "enum", None) or ()
    if enum and value not in enum:
        yield place, f"Member must satisfy enum value set: {sorted(enum)}"
    most = shape.metadata.get("max")
    if most is not None and _size(value) > most:
        yield place, f"Member must have a value or a length of at most {most}"


def _size(value: Any) -> float:
    if isinstance(value, int | float):
        return value
    return len(cast(str | bytes | list[Any], value)) if isinstance(value, str | bytes | list) else 0


def answer(service: str, operation: str, result: Mapping[str, Any]) -> tuple[int, bytes]:
    """Status and body; KeyError for a member that the service does not have."""
    model: Any = operation_model(service, operation)
    shape: Any = model.output_shape
    status = int(model.http.get("responseCode", 200))
    if shape is None or status == 204:
        return status, b""
    return status, json.dumps(_plain(shape, result)).encode()


@functools.cache
def _service(service: str) -> Any:
    from moto.core.utils import get_service_model  # noqa: PLC0415 - botocore's, and what moto's parsers want of it

    return get_service_model(botocore_name(service))


@functools.cache
def _ways(service: str) -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    """(operation, method, path) of a REST service; paths without parameters come first."""
    models = {name: operation_model(service, name) for name in _service(service).operation_names}
    found = [(name, str(m.http["method"]), str(m.http["requestUri"])) for name, m in models.items()]
    ranked = sorted(found, key=lambda way: (way[2].count("{"), way[2]))
    return tuple((name, method, _pattern(path)) for name, method, path in ranked)


def _pattern(path: str) -> re.Pattern[str]:
    plain = path.partition("?")[0].rstrip("/")
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(plain)) + "/?")


def _from_path(model: Any, target: str) -> dict[str, Any]:
    path, _, query = target.partition("?")
    match = _pattern(str(model.http["requestUri"])).fullmatch(path)
    named = {k: unquote(v) for k, v in (match.groupdict() if match else {}).items()}
    texts: dict[str, list[str]] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        texts.setdefault(key, []).append(value)
    found: dict[str, Any] = {}
    for name, member in model.input_shape.members.items():
        place, key = member.serialization.get("location"), member.serialization.get("name", name)
        if place == "uri" and key in named:
            found[name] = named[key]
        if place == "querystring" and key in texts:
            found[name] = _from_text(member, texts[key])
    return found


def _from_text(shape: Any, texts: list[str]) -> Any:
    if shape.type_name == "list":
        return texts
    if shape.type_name in ("integer", "long"):
        return int(texts[0])
    return texts[0].lower() == "true" if shape.type_name == "boolean" else texts[0]


def _document(body: bytes) -> dict[str, Any]:
    try:
        found: object = json.loads(body or b"{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refusal("SerializationException", "the body is no JSON object")
    return cast(dict[str, Any], found)


def _typed(shape: Any, value: Any) -> Any:
    """JSON values in the types of botocore's validator; a member without a value is absent."""
    kind = shape.type_name
    if kind == "structure" and isinstance(value, dict):
        members = {m.serialization.get("name", n): (n, m) for n, m in shape.members.items()}
        items = cast(Mapping[str, Any], value).items()
        return {
            members[k][0] if k in members else k: _typed(members[k][1], v) if k in members else v
            for k, v in items
            if v is not None
        }
    if kind == "list" and isinstance(value, list):
        return [_typed(shape.member, item) for item in cast(list[Any], value)]
    if kind == "map" and isinstance(value, dict):
        return {k: _typed(shape.value, v) for k, v in cast(Mapping[str, Any], value).items()}
    if kind == "timestamp" and isinstance(value, int | float):
        return datetime.datetime.fromtimestamp(value, datetime.UTC)
    return _blob(value) if kind == "blob" and isinstance(value, str) else value


def _blob(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise Refusal("SerializationException", "a blob is no base64") from None


def _plain(shape: Any, value: Any) -> Any:
    kind = shape.type_name
    if kind == "structure":
        given = {k: v for k, v in cast(Mapping[str, Any], value).items() if v is not None}
        return {
            shape.members[k].serialization.get("name", k): _plain(shape.members[k], v)
            for k, v in given.items()
        }
    if kind == "list":
        return [_plain(shape.member, item) for item in value]
    if kind == "map":
        return {k: _plain(shape.value, v) for k, v in value.items()}
    return value.timestamp() if isinstance(value, datetime.datetime) else value

"""A cloud that answers in the shape of botocore's model, refuses unknown names, and records each call."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ServiceModel, Shape
from botocore.validate import ParamValidator

from gpucluster.sandbox.provider.cloud import Cloud

_READS = ("describe_", "get_", "list_", "head_")
_GOOD = ("available", "AVAILABLE", "running", "active")
_FAILURES = (
    "AdministrativeActions",
    "DeletedDate",
    "FailedEntries",
    "FailureDetails",
    "NextToken",
    "Unsuccessful",
)
_DEEP = 9  # of an answer, because shapes may contain themselves


@cache
def model(service: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(service)


@cache
def operations(service: str) -> Mapping[str, str]:
    return {_snake(name): name for name in model(service).operation_names}


class RecordingCloud(Cloud):
    """`writes` are the calls that change resources, in order, as (operation, parameters)."""

    def __init__(self) -> None:
        super().__init__("us-east-2")
        object.__setattr__(self, "writes", [])

    writes: list[tuple[str, dict[str, Any]]]

    def client(self, service: str) -> Any:
        return _Client(self, service)

    def wait(self, what: str, seconds: float, done: Callable[[], bool]) -> None:
        """Return at once, but query the condition."""
        done()


class _Client:
    def __init__(self, cloud: RecordingCloud, service: str) -> None:
        self._cloud, self._service = cloud, service

    def get_paginator(self, name: str) -> Any:
        return _Pages(getattr(self, name))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = model(self._service).operation_model(operations(self._service)[name])

        def call(**parameters: Any) -> Any:
            if isinstance(parameters.get("UserData"), bytes):  # boto3 encodes it itself
                parameters["UserData"] = parameters["UserData"].decode()
            if operation.input_shape is not None:
                wrong = _problems(parameters, operation.input_shape)
                assert wrong == [], f"{name}: {wrong}"
            if not name.startswith(_READS):
                self._cloud.writes.append((name, parameters))
            return _answer(operation.output_shape, 0) if operation.output_shape else {}

        return call


def _problems(parameters: Mapping[str, Any], shape: Any) -> list[str]:
    """Report unknown names, wrong types and missing parameters; the length of a value is not checked."""
    report = ParamValidator().validate(parameters, shape).generate_report()
    return [line for line in report.splitlines() if "Invalid length" not in line and "valid min" not in line]


class _Pages:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def paginate(self, **parameters: Any) -> list[Any]:
        return [self._call(**parameters)]


def _answer(shape: Any, depth: int) -> Any:
    kind = shape.type_name
    if kind == "structure":
        return (
            {}
            if depth > _DEEP
            else {n: _answer(m, depth + 1) for n, m in shape.members.items() if _is_told(n)}
        )
    if kind == "list":
        return [] if depth > _DEEP else [_answer(shape.member, depth + 1)]
    return _scalar(shape)


def _is_told(name: str) -> bool:
    return name not in _FAILURES


def _scalar(shape: Shape) -> Any:
    kind, choices = shape.type_name, getattr(shape, "enum", None) or []
    if kind == "string":
        return next(
            (word for word in _GOOD if word in choices), choices[0] if choices else "said-by-the-cloud"
        )
    values: dict[str, Any] = {
        "integer": 7,
        "long": 7,
        "double": 7.0,
        "float": 7.0,
        "boolean": True,
        "map": {},
    }
    values |= {"timestamp": datetime(2026, 1, 1, tzinfo=UTC), "blob": b""}
    return values[kind]


def _snake(name: str) -> str:
    """Convert names as boto3 does, for the operations that we call."""
    from botocore import xform_name

    return re.sub("__+", "_", xform_name(name))

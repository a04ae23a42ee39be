"""What a row says while it waits: a line in the engine's own log, beside the resource that waits."""

from functools import cached_property
from typing import Any

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

_PATIENCE_S = 5.0


class EngineLog:
    """The engine that started us, at the address that it gave us."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, urn: str, text: str) -> None:
        """Say it. An engine that does not hear stops no work."""
        line = engine_pb2.LogRequest(severity=engine_pb2.INFO, message=text, urn=urn)
        try:
            self._stub.Log(line, timeout=_PATIENCE_S)
        except grpc.RpcError:
            return

    @cached_property
    def _stub(self) -> Any:
        return engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._address))

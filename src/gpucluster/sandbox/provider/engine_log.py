"""Send progress of a waiting resource to the engine's log."""

from functools import cached_property
from typing import Any

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

_PATIENCE_S = 5.0


class EngineLog:
    """A client of the engine, at the address from the command line."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, urn: str, text: str) -> None:
        """Send a message. Ignore errors: a missing engine must not stop the operation."""
        line = engine_pb2.LogRequest(severity=engine_pb2.INFO, message=text, urn=urn)
        try:
            self._stub.Log(line, timeout=_PATIENCE_S)
        except grpc.RpcError:
            return

    @cached_property
    def _stub(self) -> Any:
        return engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._address))

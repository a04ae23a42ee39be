"""The process of one program: it runs with the SDK and the offline engine, without a socket.

Each program needs its own process, because the SDK keeps the root stack and its settings in module variables.
Standard output has only the answer. Output of the program goes to standard error.
"""

import asyncio
import importlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn, cast

import grpc
from pulumi.runtime.proto import engine_pb2_grpc, resource_pb2_grpc
from pulumi.runtime.settings import Settings, configure
from pulumi.runtime.stack import run_in_stack

from gpucluster.engine.offline.located import from_thread, from_traceback
from gpucluster.engine.offline.messages import Answer, Failure, Order
from gpucluster.engine.offline.monitor import Engine, Monitor
from gpucluster.engine.offline.urns import StackIdentity, name_of, type_of
from gpucluster.plan.codec import dumps, loads


def main(at_end: Callable[[], None] = lambda: None) -> NoReturn:
    """Read the order, run the program, write the answer, call `at_end`."""
    send = _answering(at_end)
    order = loads(Order, sys.stdin.buffer.read())
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # tasks of a failed program
    monitor = Monitor(StackIdentity(order.project, order.stack), order.answers, assume=order.assume)
    watch = threading.Timer(order.limit_s, lambda: send(_late(order, monitor)))
    watch.daemon = True
    watch.start()
    send(_answered(order, monitor))


def _answering(at_end: Callable[[], None]) -> Callable[[Answer], NoReturn]:
    """Reserve standard output for one answer. The first caller writes it and ends the process."""
    out, first = os.dup(1), threading.Lock()
    os.dup2(2, 1)

    def send(answer: Answer) -> NoReturn:
        first.acquire()
        with os.fdopen(out, "w", encoding="utf-8") as file:
            file.write(dumps(answer))
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        at_end()
        os._exit(0)  # exit at once: pending coroutines would print warnings, and gRPC shuts down slowly

    return send


def _answered(order: Order, monitor: Monitor) -> Answer:
    try:
        _run(order, monitor)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the program's, whatever it is
        return Answer(failure=_failure(order, monitor, error))
    planned = monitor.registry.planned()
    if not planned.resources:
        return Answer(failure=Failure(message="it ended and declared nothing"))
    return Answer(planned=planned)


def _run(order: Order, monitor: Monitor) -> None:
    configure(
        Settings(
            project=order.project,
            stack=order.stack,
            organization="organization",
            monitor=resource_pb2_grpc.ResourceMonitorStub(cast(grpc.Channel, _Channel(monitor))),
            engine=engine_pb2_grpc.EngineStub(cast(grpc.Channel, _Channel(Engine()))),
            dry_run=True,
        )
    )
    module, _, function = order.program.partition(":")
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_quiet)
    program = getattr(importlib.import_module(module), function)
    loop.run_until_complete(run_in_stack(partial(program, order.plan)))


class _RefusedError(grpc.RpcError):
    """A rejected call, as a gRPC stub raises it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


class _Context:
    """The part of the gRPC context that the monitor uses."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise _RefusedError(code, details)

    def set_code(self, code: grpc.StatusCode) -> None:
        """Do nothing. The stub of a missing method calls this before `set_details`."""

    def set_details(self, details: str) -> NoReturn:
        raise _RefusedError(grpc.StatusCode.UNIMPLEMENTED, details)


class _Channel:
    """A gRPC channel that calls the servicer directly. With 30 pools, a socket took a fifth of the program's time."""

    def __init__(self, servicer: object) -> None:
        self._servicer = servicer

    def unary_unary(self, path: str, *_: object, **__: object) -> Callable[..., object]:
        """Return the function for a path such as `/pulumirpc.ResourceMonitor/RegisterResource`."""
        method = getattr(self._servicer, path.rpartition("/")[2])

        def call(request: object, **_: object) -> object:
            return method(request, _Context())

        return call


def _quiet(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Ignore errors that asyncio reports after the first error."""


def _failure(order: Order, monitor: Monitor, error: BaseException) -> Failure:
    trace = "".join(traceback.format_exception(error))
    if monitor.refusals:  # the SDK wraps refusals in other text
        return Failure(message=monitor.refusals[0], trace=trace)
    where = from_traceback(error.__traceback__, _package(order))
    text = "it left with " + repr(error) if isinstance(error, SystemExit) else _text_of(error)
    return Failure(message=f"{where}: {text}" if where else text, trace=trace)


def _package(order: Order) -> str:
    return order.program.partition(":")[0].partition(".")[0]


def _text_of(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _late(order: Order, monitor: Monitor) -> Answer:
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  no public call returns it
    main_frame = frames.get(threading.main_thread().ident or 0)
    where = from_thread(main_frame, _package(order))
    position = f"it stands at {where}" if where else "it waits for an output that nothing gives"
    return Answer(
        failure=Failure(
            message=f"it did not end within {order.limit_s:g} s: {position}{_declared(monitor)}",
            trace="".join(traceback.format_stack(main_frame)),
        )
    )


def _declared(monitor: Monitor) -> str:
    count, last = monitor.registry.count(), monitor.registry.last
    return f" ({count} resources declared, the last {type_of(last)} {name_of(last)!r})" if count else ""

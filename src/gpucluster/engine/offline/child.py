"""The process that runs one program: our engine and the program's SDK side by side; the monitor over a Unix socket.

A process of its own, because the SDK keeps the root stack and its settings in the module: one program, one process.
Standard output is the answer's alone; what the program prints goes to standard error.
"""

import asyncio
import gc
import importlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn

import grpc
from pulumi.runtime.proto import resource_pb2_grpc
from pulumi.runtime.settings import Settings, configure
from pulumi.runtime.stack import run_in_stack

from gpucluster.engine.offline.located import from_thread, from_traceback
from gpucluster.engine.offline.messages import Answer, Failure, Order
from gpucluster.engine.offline.monitor import Engine, Monitor
from gpucluster.engine.offline.urns import Place, name_of, type_of
from gpucluster.plan.codec import dumps, loads

THREADS: Final = 8  # a registration may wait for a transform, which is a call of the program's
MESSAGE_BYTES: Final = 400 * 1024 * 1024  # the SDK's own limit


def main() -> NoReturn:
    """Read the order, run the program, say what it declared."""
    say = _answering()
    gc.disable()  # a process of a second: of 30 pools the collector took two thirds, and found nothing to free
    order = loads(Order, sys.stdin.buffer.read())
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # tasks of a program that failed
    monitor = Monitor(Place(order.project, order.stack), order.answers, assume=order.assume)
    watch = threading.Timer(order.limit_s, lambda: say(_late(order, monitor)))
    watch.daemon = True
    watch.start()
    server = _serve(monitor, order.socket)
    answer = _answered(order, monitor)
    server.stop(grace=None)
    say(answer)


def _answering() -> Callable[[Answer], NoReturn]:
    """Keep standard output for one answer, whoever comes first; the process ends with it, whatever still runs."""
    out, first = os.dup(1), threading.Lock()
    os.dup2(2, 1)

    def say(answer: Answer) -> NoReturn:
        first.acquire()
        with os.fdopen(out, "w", encoding="utf-8") as file:
            file.write(dumps(answer))
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(0)  # coroutines of a failed program would complain, and gRPC takes its time

    return say


def _serve(monitor: Monitor, socket: str) -> grpc.Server:
    size = ("grpc.max_receive_message_length", MESSAGE_BYTES)
    server = grpc.server(ThreadPoolExecutor(THREADS), options=[size])
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _answered(order: Order, monitor: Monitor) -> Answer:
    try:
        _run(order)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the program's, whatever it is
        return Answer(failure=_failure(order, monitor, error))
    planned = monitor.registry.planned()
    if not planned.resources:
        return Answer(failure=Failure(message="it ended and declared nothing"))
    return Answer(planned=planned)


def _run(order: Order) -> None:
    configure(
        Settings(
            project=order.project,
            stack=order.stack,
            organization="organization",
            monitor=f"unix:{order.socket}",
            engine=_Nearby(),
            dry_run=True,
        )
    )
    module, _, function = order.program.partition(":")
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_quiet)
    program = getattr(importlib.import_module(module), function)
    loop.run_until_complete(run_in_stack(partial(program, order.plan)))


class _Nearby:
    """The engine's ear without a socket between: the SDK tells it every second thing, each a call that waits."""

    def __init__(self) -> None:
        self._engine = Engine()

    def __getattr__(self, name: str) -> Callable[[object], object]:
        return lambda request: getattr(self._engine, name)(request, None)


def _quiet(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """What nobody waited for, after the error that counts."""


def _failure(order: Order, monitor: Monitor, error: BaseException) -> Failure:
    trace = "".join(traceback.format_exception(error))
    if monitor.refusals:  # the SDK wraps them in its own words
        return Failure(message=monitor.refusals[0], trace=trace)
    where = from_traceback(error.__traceback__, _package(order))
    said = "it left with " + repr(error) if isinstance(error, SystemExit) else _said(error)
    return Failure(message=f"{where}: {said}" if where else said, trace=trace)


def _package(order: Order) -> str:
    return order.program.partition(":")[0].partition(".")[0]


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _late(order: Order, monitor: Monitor) -> Answer:
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  no other door
    main_frame = frames.get(threading.main_thread().ident or 0)
    where = from_thread(main_frame, _package(order))
    stands = f"it stands at {where}" if where else "it waits for an output that nothing gives"
    return Answer(
        failure=Failure(
            message=f"it did not end within {order.limit_s:g} s: {stands}{_declared(monitor)}",
            trace="".join(traceback.format_stack(main_frame)),
        )
    )


def _declared(monitor: Monitor) -> str:
    count, last = monitor.registry.count(), monitor.registry.last
    return f" ({count} resources declared, the last {type_of(last)} {name_of(last)!r})" if count else ""

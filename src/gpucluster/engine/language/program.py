"""`python -m gpucluster.engine.language.program`: the process of one program, connected to the engine."""

import asyncio
import gc
import importlib
import logging
import os
import runpy
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType

import grpc
import pulumi
from pulumi.runtime import run_in_stack, set_all_config
from pulumi.runtime.settings import reset_options

from gpucluster.engine.amended import amend_with
from gpucluster.engine.language.order import SAID_ALREADY, Order
from gpucluster.engine.plugin import leave_with_parent
from gpucluster.errors import GpuclusterError
from gpucluster.plan.codec import loads

# the engine goes away beneath a program that it stops
_GONE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


def main() -> int:
    """Run the program of the order to its end; the exit code."""
    leave_with_parent()
    signal.signal(signal.SIGINT, _goodbye)
    gc.disable()  # as of a program in our own process: engine/run.py
    order = loads(Order, sys.stdin.buffer.read())
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # tasks of a program that failed
    _configure(order)
    if order.amend:
        module, _, function = order.amend.partition(":")
        amend_with(getattr(importlib.import_module(module), function))
    os.chdir(order.folder)
    sys.argv = [order.program]
    return _run(order)


def _goodbye(_: int, __: FrameType | None) -> None:
    """The engine's, after a resource that failed or a Ctrl-C: it has said why, and a traceback of ours would say nothing."""
    os._exit(SAID_ALREADY)


def _configure(order: Order) -> None:
    reset_options(
        project=order.project,
        stack=order.stack,
        root_directory=order.root,
        parallel=order.parallel,
        engine_address=order.engine,
        monitor_address=order.monitor,
        preview=order.preview,
        organization=order.organization,
    )
    set_all_config(dict(order.config), list(order.secret_keys))


def _run(order: Order) -> int:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(max_workers=max(order.parallel, 1) * 4))

    def work() -> None:
        runpy.run_path(order.program, run_name="__main__")

    try:
        loop.run_until_complete(run_in_stack(work))
    except grpc.RpcError as error:
        _tell(error, "" if _code(error) in _GONE else str(error))
    except (GpuclusterError, pulumi.RunError) as error:
        _tell(error, str(error))  # a sentence for people
    except (Exception, SystemExit) as error:  # noqa: BLE001  the program's, whatever it is
        _tell(error, "the program failed:\n" + "".join(traceback.format_exception(error)))
    else:
        return 0
    return SAID_ALREADY


def _code(error: grpc.RpcError) -> object:
    return error.code() if isinstance(error, grpc.Call) else None


def _tell(error: BaseException, text: str) -> None:
    with suppress(grpc.RpcError):  # an engine that is gone hears nothing
        if text:
            pulumi.log.error(text)


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # coroutines of a failed program would complain, and gRPC takes its time

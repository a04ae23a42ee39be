"""`python -m gpucluster.sandbox.language.program`: run one program, connected to the engine."""

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

from gpucluster.engine.plugin import leave_with_parent
from gpucluster.engine.program import add_overlay
from gpucluster.errors import GpuclusterError
from gpucluster.plan.codec import loads
from gpucluster.sandbox.language.request import SAID_ALREADY, Order

# the engine may exit before a program that it stops
_GONE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


def main() -> int:
    """Run the requested program and return the exit code."""
    leave_with_parent()
    signal.signal(signal.SIGINT, _goodbye)
    gc.disable()  # as engine/run.py does for a program in its own process
    order = loads(Order, sys.stdin.buffer.read())
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # tasks of a failed program
    _configure(order)
    if order.overlay:
        module, _, function = order.overlay.partition(":")
        add_overlay(getattr(importlib.import_module(module), function))
    os.chdir(order.folder)
    sys.argv = [order.program]
    return _run(order)


def _goodbye(_: int, __: FrameType | None) -> None:
    """Exit of the engine after a failed resource or Ctrl-C. The engine reports the reason, so no traceback is shown."""
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
        _tell(error, str(error))  # a message for people
    except (Exception, SystemExit) as error:  # noqa: BLE001  the program's, whatever it is
        _tell(error, "the program failed:\n" + "".join(traceback.format_exception(error)))
    else:
        return 0
    return SAID_ALREADY


def _code(error: grpc.RpcError) -> object:
    return error.code() if isinstance(error, grpc.Call) else None


def _tell(error: BaseException, text: str) -> None:
    with suppress(grpc.RpcError):  # the engine may be gone
        if text:
            pulumi.log.error(text)


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # exit at once: pending coroutines would print warnings, and gRPC shuts down slowly

"""The language protocol (`pulumirpc.LanguageRuntime`): the methods for up, preview and policy packs."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from gpucluster.plan.codec import dumps
from gpucluster.sandbox.language.request import AMEND_VARIABLE, SAID_ALREADY, Order
from gpucluster.shell import ending_with_us

_CHUNK = 64 * 1024


@dataclass(slots=True)
class Children:
    """The running child processes. They must not outlive this process."""

    living: set["subprocess.Popen[bytes]"] = field(default_factory=set["subprocess.Popen[bytes]"])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, argv: list[str], **how: Any) -> "subprocess.Popen[bytes]":
        """Start a child, as Popen does."""
        child = cast("subprocess.Popen[bytes]", subprocess.Popen(argv, **how))
        with self.lock:
            self.living.add(child)
        return child

    def wait(self, child: "subprocess.Popen[bytes]") -> int:
        """Return the exit code of the child."""
        code = child.wait()
        with self.lock:
            self.living.discard(child)
        return code

    def end(self) -> None:
        """Kill all running children."""
        with self.lock:
            for child in self.living:
                child.kill()


class PythonHost(language_pb2_grpc.LanguageRuntimeServicer):
    """One process of the language host. The last positional argument is the engine's address."""

    def __init__(self, engine: str, children: Children) -> None:
        self._engine, self._children = engine, children

    def GetPluginInfo(self, request: empty_pb2.Empty, context: object) -> plugin_pb2.PluginInfo:  # noqa: N802
        """Return no version: the engine then requires none."""
        return plugin_pb2.PluginInfo()

    def GetRequiredPackages(  # noqa: N802
        self, request: object, context: object
    ) -> language_pb2.GetRequiredPackagesResponse:
        """Return no plugins: the engine looks for a provider when a resource needs it."""
        return language_pb2.GetRequiredPackagesResponse()

    def GetRequiredPlugins(  # noqa: N802
        self, request: object, context: object
    ) -> language_pb2.GetRequiredPluginsResponse:
        """Return no plugins, for the older method."""
        return language_pb2.GetRequiredPluginsResponse()

    def GetProgramDependencies(  # noqa: N802
        self, request: object, context: object
    ) -> language_pb2.GetProgramDependenciesResponse:
        """Return information for `pulumi about`. The virtual environment is gpucluster's own."""
        return language_pb2.GetProgramDependenciesResponse()

    def About(self, request: object, context: object) -> language_pb2.AboutResponse:  # noqa: N802
        """Return packages for `pulumi about`."""
        return language_pb2.AboutResponse(
            executable=sys.executable, version=".".join(map(str, sys.version_info[:3]))
        )

    def InstallDependencies(  # noqa: N802
        self, request: object, context: object
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """Do nothing for `pulumi install`: the program uses this Python environment."""
        yield from ()

    def Run(self, request: language_pb2.RunRequest, context: object) -> language_pb2.RunResponse:  # noqa: N802
        """Run the program in a separate process, because the SDK supports one stack for each process."""
        order = self._order(request)
        argv = [sys.executable, "-I", "-m", "gpucluster.sandbox.language.program"]
        child = self._children.start(argv, stdin=subprocess.PIPE)
        if child.stdin is not None:
            with child.stdin as pipe:
                pipe.write(dumps(order).encode())
        code = self._children.wait(child)
        if code == SAID_ALREADY:
            return language_pb2.RunResponse(bail=True)
        error = f"the program's process ended with code {code}" if code else ""
        return language_pb2.RunResponse(error=error)

    def RunPlugin(  # noqa: N802
        self, request: language_pb2.RunPluginRequest, context: object
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Run a policy pack. Its output goes to the engine; the first line is the port."""
        if request.kind != "analyzer":
            text = f"the stand-in language host runs programs and policy packs, not a plugin of kind {request.kind!r}\n"
            yield language_pb2.RunPluginResponse(stderr=text.encode())
            yield language_pb2.RunPluginResponse(exitcode=1)
            return
        child = self._start_pack(request)
        if child.stdout is not None:
            while chunk := os.read(child.stdout.fileno(), _CHUNK):
                yield language_pb2.RunPluginResponse(stdout=chunk)
        yield language_pb2.RunPluginResponse(exitcode=self._children.wait(child))

    def _start_pack(self, request: language_pb2.RunPluginRequest) -> "subprocess.Popen[bytes]":
        """Return the command of a pack. Unbuffered, because the engine waits for the first line."""
        folder = request.info.program_directory or request.program
        argv = [*ending_with_us(), sys.executable, "-u", "-m", "pulumi.policy", *request.args[:1], folder]
        given = {pair.partition("=")[0]: pair.partition("=")[2] for pair in request.env}
        return self._children.start(
            argv,
            cwd=request.pwd or folder,
            env={**os.environ, **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )

    def _order(self, request: language_pb2.RunRequest) -> Order:
        info = request.info
        folder = Path(info.program_directory or request.pwd)
        return Order(
            program=str(folder / (info.entry_point or request.program or ".")),
            folder=request.pwd or str(folder),
            root=info.root_directory or request.pwd,
            project=request.project,
            stack=request.stack,
            organization=request.organization or "organization",
            monitor=request.monitor_address,
            engine=self._engine,
            parallel=request.parallel,
            preview=request.dryRun,
            config=dict(request.config),
            secret_keys=tuple(request.configSecretKeys),
            overlay=os.environ.get(AMEND_VARIABLE, ""),
        )

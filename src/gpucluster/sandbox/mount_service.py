"""Where the mount stand-ins of machines ask: judged by `remote`, mounted from outside by `carry`."""

import http.server
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gpucluster import shell
from gpucluster.cloud.model import CloudModel, Ec2Instance
from gpucluster.sandbox import carry, remote
from gpucluster.sandbox.remote import Place, RefusedError, Wish

log = logging.getLogger(__name__)

_LONGEST = 16 * 1024
_SERVES, _TABLE = "run/sandbox-nfsd", "var/lib/nfs/etab"
_BUSY_S = 20.0


class ApiCloud:
    """What the sandbox's own API says, asked with the operator's key."""

    def __init__(
        self,
        model: CloudModel,
        client: Callable[[str], Any],
        clock: Callable[[], float],
        leader: Callable[[str], int | None],
    ) -> None:
        self._model, self._client, self._clock, self._leader = model, client, clock, leader

    def at(self, address: str) -> Ec2Instance | None:
        return self._model.at_address(address, self._clock())

    def efs_targets(self, file_system: str) -> list[Mapping[str, Any]]:
        from botocore.exceptions import ClientError  # noqa: PLC0415  the supervisor starts without it

        try:
            return self._client("efs").describe_mount_targets(FileSystemId=file_system)["MountTargets"]
        except ClientError:
            return []

    def efs_groups(self, target: str) -> list[str]:
        found = self._client("efs").describe_mount_target_security_groups(MountTargetId=target)
        return found["SecurityGroups"]

    def lustre(self, dns_name: str) -> Mapping[str, Any] | None:
        found = self._client("fsx").describe_file_systems()["FileSystems"]
        return next((one for one in found if one.get("DNSName") == dns_name), None)

    def lustre_groups(self, system: Mapping[str, Any]) -> list[str]:
        ids = list(system.get("NetworkInterfaceIds", ()))
        if not ids:
            return []
        found = self._client("ec2").describe_network_interfaces(NetworkInterfaceIds=ids)
        return [group["GroupId"] for one in found["NetworkInterfaces"] for group in one["Groups"]]

    def rules(self, groups: Iterable[str]) -> list[Mapping[str, Any]]:
        if not (wanted := list(groups)):
            return []
        found = self._client("ec2").describe_security_groups(GroupIds=wanted)
        return [rule for group in found["SecurityGroups"] for rule in group["IpPermissions"]]

    def exports(self, machine: str) -> list[tuple[str, str]] | None:
        leader = self._leader(machine)
        root = Path(f"/proc/{leader}/root")
        if leader is None or not (root / _SERVES).exists():
            return None
        rows = [line.split("\t") for line in (root / _TABLE).read_text().splitlines() if "\t" in line]
        return [(path, to.partition("(")[0]) for path, to in rows]


class Mounts:
    """Does what is asked, in whose machine it is asked."""

    def __init__(self, cloud: ApiCloud, folder: Path, leader: Callable[[str], int | None]) -> None:
        self._cloud, self._folder, self._leader = cloud, folder, leader

    def mount(self, caller: str, order: Mapping[str, Any]) -> str:
        """Empty when it is mounted; else mount's words."""
        client = self._cloud.at(caller)
        leader = None if client is None else self._leader(client.id)
        if client is None or leader is None:
            return "mount: the cloud does not know this machine"
        wish = Wish(type=str(order["type"]), source=str(order["source"]))
        try:
            pid, path = self._found(remote.judge(self._cloud, wish, client), wish)
        except RefusedError as refused:
            return str(refused)
        target = str(order["target"])
        argv = [sys.executable, "-I", "-S", str(carry.__file__), str(pid), path, str(leader), target]
        done = shell.run(argv, check=False, timeout_s=_BUSY_S)
        return "" if done.code == 0 else f"mount: {target}: {done.stderr.strip()}"

    def _found(self, place: Place, wish: Wish) -> tuple[int | str, str]:
        if place.machine is not None:
            if (leader := self._leader(place.machine)) is None:
                raise RefusedError(f"mount.nfs4: Connection timed out for {wish.source}")
            return leader, place.path
        folder = (self._folder / place.path).resolve()
        if not folder.is_relative_to(self._folder):
            raise RefusedError(f"mount: {wish.source}: no such file system")
        if place.path.count("/") and not place.path.startswith("outside/") and not folder.is_dir():
            raise RefusedError(
                f"mount.nfs4: mounting {wish.source} failed, reason given by server: No such file or directory"
            )
        folder.mkdir(parents=True, exist_ok=True)
        return "self", str(folder)


def serve(mounts: Mounts, address: tuple[str, int]) -> None:
    """Answer on the address until the process ends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                body = self.rfile.read(min(int(self.headers.get("Content-Length", "0")), _LONGEST))
                said = mounts.mount(self.client_address[0], json.loads(body))
            except Exception as error:  # the edge: one bad request must not end the service
                log.exception("a mount failed")
                said = f"mount: the sandbox failed: {type(error).__name__}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(said.encode())))
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in the library
            """Nothing: what fails stands on the machine."""

    server = http.server.ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

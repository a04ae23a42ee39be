"""The service that the mount stand-ins of machines call: `network_mounts` decides, `bind_mounts` mounts."""

import http.server
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gpucluster import shell
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance
from gpucluster.sandbox.machines import bind_mounts, network_mounts
from gpucluster.sandbox.machines.network_mounts import MountRequest, MountSource, RefusedError

log = logging.getLogger(__name__)

_LONGEST = 16 * 1024
_SERVES, _TABLE = "run/sandbox-nfsd", "var/lib/nfs/etab"
_BUSY_S = 20.0


class ApiCloud:
    """Reads the sandbox's own API with the operator's key."""

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

    def efs_policy(self, file_system: str) -> tuple[str, Mapping[str, Any] | None]:
        from botocore.exceptions import ClientError  # noqa: PLC0415  as above

        efs = self._client("efs")
        arn = efs.describe_file_systems(FileSystemId=file_system)["FileSystems"][0]["FileSystemArn"]
        try:
            return arn, json.loads(efs.describe_file_system_policy(FileSystemId=file_system)["Policy"])
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "PolicyNotFound":
                raise
            return arn, None

    def efs_root(self, access_point: str) -> tuple[str, str] | None:
        from botocore.exceptions import ClientError  # noqa: PLC0415  as above

        try:
            (found,) = self._client("efs").describe_access_points(AccessPointId=access_point)["AccessPoints"]
        except ClientError:
            return None
        return found["FileSystemId"], found["RootDirectory"]["Path"]

    def role_policies(self, client: Ec2Instance) -> list[Mapping[str, Any]]:
        if client.spec.profile is None:
            return []
        iam, name = self._client("iam"), client.spec.profile.rpartition("/")[2]
        roles = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
        return [
            iam.get_role_policy(RoleName=role["RoleName"], PolicyName=policy)["PolicyDocument"]
            for role in roles
            for policy in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
        ]

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
    """Carries out mount requests in the machine of the caller."""

    def __init__(self, cloud: ApiCloud, folder: Path, leader: Callable[[str], int | None]) -> None:
        self._cloud, self._folder, self._leader = cloud, folder, leader

    def mount(self, caller: str, order: Mapping[str, Any]) -> str:
        """Mount; return "" or the error text of mount."""
        client = self._cloud.at(caller)
        leader = None if client is None else self._leader(client.id)
        if client is None or leader is None:
            return "mount: the cloud does not know this machine"
        request = MountRequest(**{key: str(order[key]) for key in ("type", "source", "target", "options")})
        try:
            pid, path = self._found(network_mounts.resolve(self._cloud, request, client), request)
        except RefusedError as refused:
            return str(refused)
        target = request.target
        argv = [sys.executable, "-I", "-S", str(bind_mounts.__file__), str(pid), path, str(leader), target]
        done = shell.run(argv, check=False, timeout_s=_BUSY_S)
        return "" if done.code == 0 else f"mount: {target}: {done.stderr.strip()}"

    def _found(self, place: MountSource, request: MountRequest) -> tuple[int | str, str]:
        if place.machine is not None:
            if (leader := self._leader(place.machine)) is None:
                raise RefusedError(f"mount.nfs4: Connection timed out for {request.source}")
            return leader, place.path
        folder = (self._folder / place.path).resolve()
        if not folder.is_relative_to(self._folder):
            raise RefusedError(f"mount: {request.source}: no such file system")
        if (
            not place.makes
            and place.path.count("/")
            and not place.path.startswith("outside/")
            and not folder.is_dir()
        ):
            raise RefusedError(
                f"mount.nfs4: mounting {request.source} failed, reason given by server: No such file or directory"
            )
        folder.mkdir(parents=True, exist_ok=True)
        return "self", str(folder)


def serve(mounts: Mounts, address: tuple[str, int]) -> None:
    """Serve on the address until the process ends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                body = self.rfile.read(min(int(self.headers.get("Content-Length", "0")), _LONGEST))
                answer = mounts.mount(self.client_address[0], json.loads(body))
            except Exception as error:  # a failed request must not end the service
                log.exception("a mount failed")
                answer = f"mount: the sandbox failed: {type(error).__name__}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer.encode())))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in the library
            """Log nothing: errors appear on the machine."""

    server = http.server.ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

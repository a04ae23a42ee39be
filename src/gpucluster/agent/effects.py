"""The effects on the real machine: files, commands, the network, the clock."""

import errno
import grp
import http.client
import os
import pwd
import random
import socket
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from gpucluster.agent.boot.identity import LOCAL_REGION
from gpucluster.agent.boot.imds import Metadata
from gpucluster.agent.credentials import job_server, socket_diag
from gpucluster.agent.credentials.job_role import HERE as JOBS_HERE
from gpucluster.agent.credentials.job_server import JobServer
from gpucluster.agent.machine import Machine, Reply, Services
from gpucluster.agent.services import AwsServices, FolderServices
from gpucluster.shell import run

POST_S = 5.0
ROOT_PORTS = range(
    512, 665
)  # source ports of root; the kernel's NFS client uses 665 to 1023, Lustre the ports above 988
LARGEST_ANSWER = 4 * 1024 * 1024


def this_machine() -> Machine:
    """Return the effects on this machine."""
    machine = Machine(
        root=Path("/"),
        run=run,
        metadata=Metadata(),
        services=cache(services),
        post=post,
        listening=listening,
        chown=chown,
        now=time.monotonic,  # the same for every process of one boot
        pause=time.sleep,
        diag=socket_diag.owner,
    )
    return replace(machine, serve_jobs=JobServer(JOBS_HERE, partial(job_server.socket_owner, machine)).serve)


def services(region: str) -> Services:
    """Return the AWS services of a region, or the local folder that replaces them on an existing host."""
    return FolderServices() if region == LOCAL_REGION else AwsServices(region)


def post(address: str, port: int, path: str, body: bytes) -> Reply:
    """Send a POST request from a source port of root. It ignores proxy variables of the environment, and raises only OSError."""
    connection = http.client.HTTPConnection(address, port, timeout=POST_S)
    connection.sock = _connect_from_root_port(address, port)
    try:
        connection.request("POST", path, body, {"Connection": "close"})
        answer = connection.getresponse()
        return Reply(answer.status, answer.read(LARGEST_ANSWER))
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP answer: {error!r}") from error
    finally:
        connection.close()


def _connect_from_root_port(address: str, port: int) -> socket.socket:
    """Connect from a port that users cannot bind; from any port if this process cannot bind one either."""
    for source in random.sample(ROOT_PORTS, len(ROOT_PORTS)):
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.bind(("", source))
        except PermissionError:
            connection.close()
            break
        except OSError:  # in use
            connection.close()
            continue
        try:
            connection.settimeout(POST_S)
            connection.connect((address, port))
        except OSError as error:
            connection.close()
            # this port has a connection to the address, or had one a minute ago
            if error.errno == errno.EADDRNOTAVAIL:
                continue
            raise
        return connection
    return socket.create_connection((address, port), timeout=POST_S)


def listening(address: str, port: int) -> bool:
    """Return whether the port accepts a TCP connection within two seconds."""
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False


def chown(descriptor: int, user: str) -> None:
    """Set the owner of an open file to the user, and the group to the group of the same name."""
    os.fchown(descriptor, pwd.getpwnam(user).pw_uid, grp.getgrnam(user).gr_gid)

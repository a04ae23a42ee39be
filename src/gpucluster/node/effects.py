"""The real machine: files below /, programs, the network, the clock."""

import grp
import http.client
import os
import pwd
import socket
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from gpucluster.node import peers
from gpucluster.node.aws import RoleStore
from gpucluster.node.folder import FolderStore
from gpucluster.node.identity import HERE
from gpucluster.node.imds import Metadata
from gpucluster.node.job_role import HERE as JOBS_HERE
from gpucluster.node.job_server import JobServer
from gpucluster.node.machine import Machine, Reply, Store
from gpucluster.shell import run

POST_S = 5.0
LARGEST_ANSWER = 4 * 1024 * 1024


def real() -> Machine:
    """This machine."""
    machine = Machine(
        root=Path("/"),
        run=run,
        metadata=Metadata(),
        store=cache(store),
        post=post,
        listening=listening,
        own=own,
        now=time.monotonic,  # the same for every process of one boot
        pause=time.sleep,
    )
    return replace(machine, serve_jobs=JobServer(JOBS_HERE, partial(peers.owner, machine)).serve)


def store(region: str) -> Store:
    """The cloud's services of a region, or this machine's own folders."""
    return FolderStore() if region == HERE else RoleStore(region)


def post(address: str, port: int, path: str, body: bytes) -> Reply:
    """POST without any proxy of the environment; every fault is an OSError."""
    connection = http.client.HTTPConnection(address, port, timeout=POST_S)
    try:
        connection.request("POST", path, body, {"Connection": "close"})
        answer = connection.getresponse()
        return Reply(answer.status, answer.read(LARGEST_ANSWER))
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP answer: {error!r}") from error
    finally:
        connection.close()


def listening(address: str, port: int) -> bool:
    """Does somebody take a TCP connection there?"""
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False


def own(path: Path, user: str) -> None:
    """Give it to the user and the group of the same name."""
    os.chown(path, pwd.getpwnam(user).pw_uid, grp.getgrnam(user).gr_gid)

"""Credentials for jobs: the agent assumes the IAM role for jobs, and gives its credentials to processes of jobs on this node.

The reasons are in docs/decisions/0005. The credentials are only in the memory of this process.
"""

import json
import logging
import pwd
import re
import shutil
import threading
from collections.abc import Callable

from gpucluster.agent.boot import run_folders
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.credentials import job_server, job_steps, job_tokens
from gpucluster.agent.credentials.job_tokens import NotThisJobError
from gpucluster.agent.machine import Machine, NotYetError, Reply, TemporaryCredentials
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names

HERE = ("127.0.0.1", names.JOBS_PORT)
SESSION_S = 3600  # the longest that STS allows when one role assumes another
FRESH_S = (
    1200.0  # shortest remaining lifetime of credentials given out; SDKs refresh when 15 minutes are left
)
LAST_S = 60.0  # if STS fails, credentials are given out until so little of their lifetime is left
RETRY_S = 5.0  # pause after a refusal by STS, however many requests come
WAIT_S = 5.0  # a request waits so long for another request's call to STS, which may take 18 s
SCAN_S = 1.0  # a scan of all processes is used again for this time: hundreds of ranks ask at once
LONGEST_NAME = 64
NOT_IN_SESSION_NAME = re.compile(r"[^A-Za-z0-9_+=,.@-]")  # characters that STS refuses

log = logging.getLogger(__name__)


def serve_credentials(machine: Machine, state: BootState) -> BootState:
    """Serve credentials if the cluster has a role for jobs. The Prolog leaves tokens if the folder exists."""
    bindings, folder = require(state.bundle).bindings, machine.path(names.JOBS_DIR)
    if bindings is None or not bindings.jobs_role:
        run_folders.unmount(machine, names.JOBS_DIR)
        shutil.rmtree(folder, ignore_errors=True)
        return state
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    run_folders.mount(machine, names.JOBS_DIR)
    try:
        machine.serve_jobs(JobRole(machine, bindings.region, bindings.jobs_role).answer)
    except OSError as error:
        raise NotYetError(
            f"cannot serve credentials of jobs at {HERE[0]}:{HERE[1]}: {error}", limit_s=60
        ) from error
    return state


class JobRole:
    """The role for jobs, assumed once for each job and user, and again after 40 minutes."""

    def __init__(
        self, machine: Machine, region: str, arn: str, user: Callable[[int], str] | None = None
    ) -> None:
        self._machine, self._region, self._arn = machine, region, arn
        self._user = user or _user
        self._held_credentials: dict[tuple[int, int], TemporaryCredentials] = {}
        self._refused_until = 0.0
        self._sts_lock = threading.Lock()
        self._running: tuple[float, frozenset[int]] = (0.0, frozenset())
        self._scan_lock = threading.Lock()

    def answer(self, token: str, client: tuple[str, int]) -> Reply:
        """Return the credentials, or the reason for a refusal in one sentence."""
        try:
            uid = job_server.socket_owner(self._machine, client, HERE)
            job = self._running_job(token, uid)
            return Reply(200, json.dumps(self._fields(self._credentials(job, uid))).encode())
        except NotThisJobError as error:
            return _refusal(403, "AccessDenied", str(error))
        except GpuclusterError:
            return _refusal(
                503,
                "NotYet",
                "the role for jobs cannot be assumed; see the log of gpucluster-agent on this node",
            )

    def _running_job(self, token: str, uid: int) -> int:
        job = job_tokens.job_of(self._machine, token, uid)
        with self._scan_lock:
            now = self._machine.now()
            scanned_at, running = self._running
            if job not in running or now - scanned_at > SCAN_S:
                self._running = now, job_steps.running_jobs(self._machine)
            if job not in self._running[1]:
                raise NotThisJobError(f"job {job} does not run here")
        return job

    def _credentials(self, job: int, uid: int) -> TemporaryCredentials:
        """Return held or new credentials. STS may hang: a request waits for it only if nothing usable is held."""
        fresh = self._cached(job, uid, FRESH_S)
        if fresh is not None:
            return fresh
        last = self._cached(job, uid, LAST_S)
        if not self._sts_lock.acquire(timeout=0 if last else WAIT_S):
            return _require(last)
        try:
            return self._cached(job, uid, FRESH_S) or self._new(job, uid)
        except GpuclusterError:
            if last is None:
                raise
            return last
        finally:
            self._sts_lock.release()

    def _cached(self, job: int, uid: int, left_s: float) -> TemporaryCredentials | None:
        credentials = self._held_credentials.get((job, uid))
        return credentials if credentials and credentials.until - left_s > self._machine.clock() else None

    def _new(self, job: int, uid: int) -> TemporaryCredentials:
        """Get credentials from STS."""
        if self._machine.now() < self._refused_until:
            raise NotYetError("STS refused the role a moment ago")
        session = NOT_IN_SESSION_NAME.sub("-", f"{job}-{self._user(uid)}")[:LONGEST_NAME]
        try:
            credentials = self._machine.services(self._region).assume_role(self._arn, session, SESSION_S)
        except GpuclusterError as error:
            self._refused_until = self._machine.now() + RETRY_S
            log.warning("the role for jobs: %s", one_line(error))
            raise
        now = self._machine.clock()
        self._held_credentials = {
            **{key: one for key, one in self._held_credentials.items() if one.until > now},
            (job, uid): credentials,
        }
        return credentials

    def _fields(self, credentials: TemporaryCredentials) -> dict[str, str]:
        """Return the fields that the SDKs' HTTP credential provider reads."""
        return {
            "RoleArn": self._arn,
            "AccessKeyId": credentials.access_key,
            "SecretAccessKey": credentials.secret,
            "Token": credentials.token,
            "Expiration": credentials.expiration,
        }


def _require(credentials: TemporaryCredentials | None) -> TemporaryCredentials:
    if credentials is None:
        raise NotYetError("STS has not answered the request of another job yet")
    return credentials


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _refusal(status: int, code: str, message: str) -> Reply:
    return Reply(status, json.dumps({"code": code, "message": message}).encode())

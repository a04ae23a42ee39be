"""Credentials for jobs: the agent takes on the role for jobs, and hands its keys to processes of jobs that run here.

docs/decisions/0005 says why so. Keys live in this process's memory only.
"""

import json
import logging
import pwd
import re
import shutil
import threading
from collections.abc import Callable

from gpucluster.errors import GpuclusterError
from gpucluster.node import job_tokens, peers, steps
from gpucluster.node.job_tokens import NotThisJobError
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Lent, Machine, NotYetError, Reply
from gpucluster.node.walk import one_line
from gpucluster.plan import names

HERE = ("127.0.0.1", names.JOBS_PORT)
LIFE_S = 3600  # the longest of a role that is taken on by a role
FRESH_S = (
    1200.0  # what is handed out lives at least so long: SDKs ask for more when a quarter of an hour is left
)
LAST_S = 60.0  # while STS gives none, what is held is handed out until so little of it is left
AGAIN_S = 5.0  # after a refusal by STS, however often jobs ask
WAIT_S = 5.0  # for another's question to STS; it may take 18 s, and who waits has one of the server's places
SEEN_S = 1.0  # a look at all processes serves so long: hundreds of ranks ask at once
LONGEST_NAME = 64
OTHER = re.compile(r"[^A-Za-z0-9_+=,.@-]")  # what STS takes in no session's name

log = logging.getLogger(__name__)


def offered(machine: Machine, known: Known) -> Known:
    """Serve jobs, if the cluster has a role for them; the folder tells the Prolog so."""
    bindings, folder = of(known.bundle).bindings, machine.place(names.JOBS_DIR)
    if bindings is None or not bindings.jobs_role:
        shutil.rmtree(folder, ignore_errors=True)
        return known
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        machine.serve_jobs(JobRole(machine, bindings.region, bindings.jobs_role).answer)
    except OSError as error:
        raise NotYetError(
            f"jobs' credentials cannot be served at {HERE[0]}:{HERE[1]}: {error}", limit_s=60
        ) from error
    return known


class JobRole:
    """One role, taken on once for each job and each 40 minutes."""

    def __init__(
        self, machine: Machine, region: str, arn: str, user: Callable[[int], str] | None = None
    ) -> None:
        self._machine, self._region, self._arn = machine, region, arn
        self._user = user or _user
        self._lent: dict[tuple[int, int], Lent] = {}
        self._refused_until = 0.0
        self._asking = threading.Lock()
        self._running: tuple[float, frozenset[int]] = (0.0, frozenset())
        self._looking = threading.Lock()

    def answer(self, token: str, client: tuple[str, int]) -> Reply:
        """What an SDK is told: the keys, or in one sentence why there are none."""
        try:
            uid = peers.owner(self._machine, client, HERE)
            job = self._running_job(token, uid)
            return Reply(200, json.dumps(self._shown(self._take(job, uid))).encode())
        except NotThisJobError as error:
            return _no(403, "AccessDenied", str(error))
        except GpuclusterError:
            return _no(
                503, "NotYet", "the role for jobs cannot be taken on: the agent's log on this node says why"
            )

    def _running_job(self, token: str, uid: int) -> int:
        job = job_tokens.job_of(self._machine, token, uid)
        with self._looking:
            now = self._machine.now()
            seen_at, running = self._running
            if job not in running or now - seen_at > SEEN_S:
                self._running = now, steps.jobs(self._machine)
            if job not in self._running[1]:
                raise NotThisJobError(f"job {job} does not run here")
        return job

    def _take(self, job: int, uid: int) -> Lent:
        """The keys that are held, or fresh ones. STS may hang: only who has nothing left waits for it."""
        held = self._held(job, uid, FRESH_S)
        if held is not None:
            return held
        last = self._held(job, uid, LAST_S)
        if not self._asking.acquire(timeout=0 if last else WAIT_S):
            return _or_not_yet(last)
        try:
            return self._held(job, uid, FRESH_S) or self._fresh(job, uid)
        except GpuclusterError:
            if last is None:
                raise
            return last
        finally:
            self._asking.release()

    def _held(self, job: int, uid: int, left_s: float) -> Lent | None:
        lent = self._lent.get((job, uid))
        return lent if lent and lent.until - left_s > self._machine.clock() else None

    def _fresh(self, job: int, uid: int) -> Lent:
        """Asked of STS."""
        if self._machine.now() < self._refused_until:
            raise NotYetError("STS refused a moment ago")
        session = OTHER.sub("-", f"{job}-{self._user(uid)}")[:LONGEST_NAME]
        try:
            lent = self._machine.store(self._region).assume(self._arn, session, LIFE_S)
        except GpuclusterError as error:
            self._refused_until = self._machine.now() + AGAIN_S
            log.warning("the role for jobs: %s", one_line(error))
            raise
        now = self._machine.clock()
        self._lent = {
            **{whose: one for whose, one in self._lent.items() if one.until > now},
            (job, uid): lent,
        }
        return lent

    def _shown(self, lent: Lent) -> dict[str, str]:
        """In the words of the SDKs' HTTP credential provider."""
        return {
            "RoleArn": self._arn,
            "AccessKeyId": lent.access_key,
            "SecretAccessKey": lent.secret,
            "Token": lent.token,
            "Expiration": lent.expiration,
        }


def _or_not_yet(lent: Lent | None) -> Lent:
    if lent is None:
        raise NotYetError("STS has not answered another job's question yet")
    return lent


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _no(status: int, code: str, message: str) -> Reply:
    return Reply(status, json.dumps({"code": code, "message": message}).encode())

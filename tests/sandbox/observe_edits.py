"""Apply edits of a spec to one cluster of the sandbox, under a running and a queued job, and record what happens.

    PYTHONPATH=tests .venv/bin/python tests/sandbox/observe_edits.py [EDIT[+EDIT...]...]    # all edits of tests/support/edits.py without a name

It needs root on Debian 12, and a minute for each edit. It writes tests/recorded/edits.json after each edit, from which
`make golden` makes docs/edits.md. An edit is applied by `pulumi up`, and seen until the head has applied or holds it. The
next one is applied on top of it, or on the base spec if it does not fit. Edits that are joined by `+` are applied at once:
what none of them did together, none of them does alone. The cluster is deleted at the end. `state-added` must be the last:
without head.state again the head stays stopped.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import ROOT, Cluster, gpucluster
from silence import Silence, answers, tried
from support.edits import BASE, EDITS, IMAGE, IMAGE_NAME, KEY, NAME, USER, Edit, edited
from support.waiting import BOUND_S

from gpucluster import artifacts
from gpucluster.plan import names

RECORDED = ROOT / "tests/recorded/edits.json"
LOGIN = f"{NAME}-login-1"
SETTLE_S = 300.0  # after it, what is not applied is recorded as such
LOOK_S = 5.0  # between the bundle on all machines and the last look
Values = dict[str, Any]


@dataclass
class Site:
    """The cluster, its checkout, and the user's job, queued job and sessions."""

    cluster: Cluster
    folder: Path
    running: int = 0
    queued: int = 0
    sessions: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def spec(self) -> Path:
        return self.folder / "stacks" / f"{NAME}.yaml"

    def write(self, text: str) -> None:
        self.spec.write_text(text.replace(KEY, " ".join((self.folder / "key.pub").read_text().split()[:2])))

    def up(self, text: str) -> str:
        """Run `pulumi up` with this spec; return the error, or nothing."""
        self.write(text)
        argv = [sys.executable, "-m", "gpucluster.cli", "sandbox", "shell", NAME, "--"]
        done = subprocess.run(
            [*argv, "pulumi", "up", "--yes", "--skip-preview"],
            cwd=self.folder, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        return (
            ""
            if done.returncode == 0
            else "\n".join(one for one in (done.stdout + done.stderr).splitlines() if "rror" in one)[:1500]
        )

    def object(self, key: str) -> bytes:
        s3 = self.cluster.client("s3")
        bucket = next(b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith(f"{NAME}-"))
        return s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    def status(self) -> Values:
        return json.loads(self.object(names.STATUS_KEY))

    def offered(self) -> str:
        return artifacts.digest(self.object(names.BUNDLE_KEY))

    def ssh(self, *argv: str) -> list[str]:
        where = ("sandbox", "ssh", NAME, LOGIN, "--user", USER, "--identity", str(self.folder / "key"))
        return [sys.executable, "-m", "gpucluster.cli", *where, "--", *argv]

    def logs_in(self) -> bool:
        return (
            subprocess.run(self.ssh("true"), capture_output=True, check=False, timeout=BOUND_S).returncode
            == 0
        )

    def begin(self) -> None:
        """Start again what the last edit ended."""
        cluster = self.cluster
        if not self.running or cluster.state(self.running) not in {"RUNNING"}:
            cluster.exec("head", "scancel", "--user", USER, check=False)
            self.running = self._submit("--gres=gpu:1", "-w", "small-1a-2")
            cluster.wait(
                "the job runs",
                lambda: cluster.state(self.running) == "RUNNING",
            )
            self.queued = 0
        if not self.queued or cluster.state(self.queued) != "PENDING":
            self.queued = self._submit(f"--dependency=afterany:{self.running}")
        for name, argv in (
            ("login", ("sleep", "100000")),
            ("srun", ("srun", f"--jobid={self.running}", "--overlap", "-n1", "sleep", "100000")),
        ):
            session = self.sessions.get(name)
            if session is None or session.poll() is not None:
                self.sessions[name] = subprocess.Popen(
                    self.ssh(*argv), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, text=True, start_new_session=True,
                )  # fmt: skip
        cluster.wait(
            "srun runs",
            self._has_step,
        )
        cluster.exec("head", "sh", "-c", f"echo kept > /home/{USER}/kept")

    def _submit(self, *options: str) -> int:
        argv = ("sbatch", "--parsable", f"--chdir=/home/{USER}", "-n1", "--mem=1G", "-p", "debug", *options)
        script = "#!/bin/bash\nsleep 100000\n"
        return int(self.cluster.exec("head", *argv, user=USER, stdin=script))

    def _has_step(self) -> bool:
        told = self.cluster.exec(
            "head", "squeue", "-h", "-s", "-j", str(self.running), "-o", "%i", check=False
        )
        return any(one.partition(".")[2].isdigit() for one in told.split())

    def instances(self) -> set[tuple[str, str]]:
        return {
            (one["id"], one["role"])
            for one in self.cluster.everything()
            if one["state"] in {"pending", "running", "stopping", "stopped"}
        }

    def settle(self) -> str:
        """Wait until head and nodes have what `pulumi up` offers; return what keeps them from it."""
        offered, end, word = self.offered(), time.monotonic() + SETTLE_S, "slurmctld does not answer"
        while time.monotonic() < end:
            if not answers(self.cluster):  # the published status is that of a head which has left
                time.sleep(0.5)
                continue
            status = self.status()
            word = str(status["detail"])
            if (
                status["bundle"] == offered
                and "is held" in word
                and ("must end" in word or "in the queue" in word)
            ):
                return word
            if status["bundle"] == offered == status["applied"] and status["ready"]:
                return ""
            time.sleep(0.5)
        return word or "the head has not applied it"

    def make_image(self) -> None:
        """Make the image that an edit names, of the head."""
        ec2 = self.cluster.ec2()
        if not ec2.describe_images(Filters=[{"Name": "name", "Values": [IMAGE_NAME]}])["Images"]:
            head = next(one["id"] for one in self.cluster.everything() if one["role"] == "head")
            assert ec2.create_image(InstanceId=head, Name=IMAGE_NAME)["ImageId"] == IMAGE

    def end(self) -> None:
        for session in self.sessions.values():
            session.kill()
            session.wait()


def observe(site: Site, text: str) -> Values:
    """Apply the spec and return what happened."""
    cluster = site.cluster
    before = cluster.job(site.running)
    began, restarts = before["start_time"]["number"], before["restart_cnt"]
    machines, drained = site.instances(), _drained(cluster)
    with Silence(cluster) as silence:
        error = site.up(text)
        waits = site.settle() if not error else ""
        time.sleep(LOOK_S)
    now = tried(lambda: cluster.job(site.running), {"job_state": ["GONE"]})
    after = site.instances()
    return {
        "pulumi": error,
        "waits": waits,
        "running": _fate(now, began, restarts),
        "queued": tried(lambda: "+".join(cluster.job(site.queued)["job_state"]), "GONE"),
        "srun": "went on" if site.sessions["srun"].poll() is None else "ended",
        "login": "went on" if site.sessions["login"].poll() is None else "ended",
        "new_login": "works" if site.logs_in() else "refused",
        "data": "kept" if "kept" in tried(lambda: cluster.exec("head", "cat", f"/home/{USER}/kept", check=False), "") else "lost",
        "silence_s": round(silence.longest, 1),
        "drained": sorted(tried(lambda: _drained(cluster), set()) - drained),
        "ended_machines": sorted(role for _, role in machines - after),
        "new_machines": sorted(role for _, role in after - machines),
    }  # fmt: skip


def _drained(cluster: Cluster) -> set[str]:
    return {name for name, node in cluster.nodes().items() if "DRAIN" in node["state"]}


def _fate(job: Values, began: int, restarts: int) -> str:
    if "RUNNING" in job["job_state"] and (job["start_time"]["number"], job["restart_cnt"]) == (
        began,
        restarts,
    ):
        return "went on"
    return "requeued" if job.get("restart_cnt", 0) > restarts else "lost: " + "+".join(job["job_state"])


def record(edit: Edit, seen: Values) -> None:
    found = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found[edit.id] = seen
    RECORDED.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


def run(site: Site, groups: list[list[Edit]]) -> None:
    """Apply one group after the other. After one that is not applied the spec goes back first."""
    made: list[tuple[str, str]] = []
    for group in groups:
        began = time.monotonic()
        changes = [change for edit in group for change in edit.changes]
        if not _fits((*made, *changes)):
            made = _back(site)
        site.begin()
        seen = observe(site, edited(BASE, (*made, *changes)))
        for edit in () if seen["pulumi"] else group:
            record(edit, {**seen, "together": [one.id for one in group if one is not edit]})
        _say(f"{[one.id for one in group]}: {seen} ({time.monotonic() - began:.0f} s)")
        made += changes
        if seen["pulumi"] or seen["waits"] or seen["new_login"] != "works":
            made = _back(site)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fits(changes: tuple[tuple[str, str], ...]) -> bool:
    try:
        edited(BASE, changes)
    except ValueError:
        return False
    return True


def _back(site: Site) -> list[tuple[str, str]]:
    error = site.up(BASE)
    waits = site.settle()
    if error or waits:
        _say(f"back: {error or waits}")
    tried(lambda: site.cluster.wait("no node is drained", lambda: not _drained(site.cluster)), None)
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description="Apply edits of a spec to a cluster of the sandbox.")
    parser.add_argument("edits", nargs="*")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up, or use the one that is up")
    given = parser.parse_args()
    known = {one.id: one for one in EDITS}
    words = given.edits or [one.id for one in EDITS]
    chosen = [[known[id_] for id_ in word.split("+")] for word in words]
    folder = Path(tempfile.gettempdir(), "gpucluster-edits") if given.keep else Path(tempfile.mkdtemp())
    (folder / "stacks").mkdir(parents=True, exist_ok=True)
    site = Site(Cluster(NAME), folder)
    try:
        if not (folder / "key").exists():
            subprocess.run(
                ["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")],
                check=True,
            )
            for name in ("Pulumi.yaml", "__main__.py"):
                (folder / name).write_text((ROOT / name).read_text())
            site.write(BASE)
            gpucluster("sandbox", "up", str(site.spec), timeout=1500)
        else:  # a run before has left the spec of its last edit
            _back(site)
        site.cluster.wait("login is up", site.logs_in, poll=1)
        site.make_image()
        run(site, chosen)
    finally:
        site.end()
        if not given.keep:
            gpucluster("sandbox", "down", NAME)


if __name__ == "__main__":
    main()

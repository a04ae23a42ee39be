"""The disk of the database is full while jobs end, on the real daemons: MariaDB has its data on a small tmpfs."""

import re

import pytest
from accounting import HeadMachine, apply_accounts, job_of, start_mariadb, start_slurmdbd, with_accounting
from real_slurm import ROOT, VERSIONS, RealSlurm
from test_accounting import PEOPLE, _plan, _start_nodes

from gpucluster.agent.boot import accounting
from gpucluster.agent.machine import Machine
from gpucluster.plan import names

DATA = "/var/lib/mysql"
MARIADB = ("/usr/sbin/mariadbd", "--user=mysql")
LONG = "x" * 100_000  # of a command line, which slurmdbd keeps (submit_line)
MIB = 1 << 20
_FULL = re.compile(r"error 28|is full|Out of disk space")


class Head(HeadMachine):
    """A head whose MariaDB starts again, too."""

    def _systemctl(self, verb: str, *rest: str) -> tuple[int, str]:
        if (verb, rest) == ("start", ("mariadb.service",)):
            self.units["mariadb.service"] = self.slurm.spawn(*MARIADB, name="mariadbd")
            return 0, ""
        return super()._systemctl(verb, *rest)


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_go_on_and_no_record_is_lost(version: str) -> None:
    """The head's health names the disk while it is full. MariaDB may end at it (S45); the agent starts it again.

    With new room slurmctld sends the records that it kept.
    """
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        slurm.stop_controller()  # it writes last_tres: slurmdbd is no longer needed for its start
        head = _move_database(slurm)
        slurm.start_controller()
        _start_nodes(slurm, "gpu01", "gpu02")
        assert _health(head, slurm) == ""
        jobs = [_submit(slurm) for _ in range(2)]
        slurm.wait(lambda: _recorded(slurm, jobs), "the first records")

        _set_free(slurm, MIB)
        jobs += [_submit(slurm) for _ in range(30)]
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "all jobs end")
        slurm.wait(
            lambda: _FULL.search(slurm.log("mariadbd.out") + slurm.log("slurmdbd")), "a full disk", 120
        )
        slurm.wait(lambda: _waiting(slurm) > 0, "records wait in slurmctld")
        assert not _recorded(slurm, jobs)
        told = _health(head, slurm)
        assert re.fullmatch(
            rf"accounting is away, jobs go on: the disk of {DATA} has [01] MiB left: the database takes no more records",
            told,
        )

        _set_free(slurm, 200 * MIB)
        slurm.wait(lambda: _health(head, slurm) == "", "the agent has started what had ended")
        slurm.wait(lambda: _recorded(slurm, jobs), "every record")
        slurm.wait(lambda: _waiting(slurm) == 0, "no record waits")


def _move_database(slurm: RealSlurm) -> HeadMachine:
    """Put MariaDB's data on a tmpfs, and start both daemons; the head with their units."""
    for program in ("slurmdbd", "mariadbd"):
        slurm.must("pkill", "--exact", program)
        slurm.wait(lambda name=program: slurm.run("pgrep", "--exact", name).code == 1, f"{program} has ended")
    at = f"{ROOT}{DATA}"
    slurm._host("sh", "-c", f"mv {at} {at}.old && mkdir {at} && mount -t tmpfs -o size=1g tmpfs {at}")
    slurm._host("sh", "-c", f"chown --reference={at}.old {at} && cp -a --sparse=never {at}.old/. {at}/")
    head = Head(slurm)
    head.units["mariadb.service"] = start_mariadb(slurm)
    head.units["slurmdbd.service"] = start_slurmdbd(slurm)
    link = slurm.path(names.BUNDLE_DIR)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("bundles/d")
    return head


def _set_free(slurm: RealSlurm, free: int) -> None:
    """Give the tmpfs this many bytes more than are in use."""
    used = slurm._host("df", "--block-size=1", "--output=used", f"{ROOT}{DATA}").split()[-1]
    slurm._host("mount", "-o", f"remount,size={int(used) + free}", f"{ROOT}{DATA}")


def _health(head: HeadMachine, slurm: RealSlurm) -> str:
    """What the agent's step says, which the head publishes in its status."""
    machine: Machine = head.machine()
    return accounting.run_slurmdbd(machine, head.state(slurm.plan)).accounting


def _submit(slurm: RealSlurm) -> str:
    options = ("-o", "/dev/null", "-t", "10", "-n", "1")
    return job_of(slurm.must("sbatch", *options, "--wrap", f"true # {LONG}", user="vision"))


def _recorded(slurm: RealSlurm, jobs: list[str]) -> bool:
    shown = slurm.run("sacct", "-nPX", "-a", "-j", ",".join(jobs), "-o", "jobid,state").out.split()
    return sorted(shown) == sorted(f"{job}|COMPLETED" for job in jobs)


def _waiting(slurm: RealSlurm) -> int:
    found = re.search(r"^DBD Agent queue size:\s*(\d+)", slurm.must("sdiag"), re.MULTILINE)
    assert found is not None
    return int(found[1])

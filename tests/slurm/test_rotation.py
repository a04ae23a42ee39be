"""Rotation of Slurm's logs by the real logrotate and our file, beside those of Debian's packages, while jobs end."""

import gzip
import re
from pathlib import Path

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan

from gpucluster import agent
from gpucluster.plan import names

OURS = "/etc/logrotate.d/gpucluster"
FILE = (Path(agent.__file__).parent / "units" / OURS.lstrip("/")).read_text()
TURNS, JOBS = 3, 8


@pytest.mark.parametrize("version", VERSIONS)
def test_no_record_of_a_job_is_lost_and_slurmctld_writes_to_the_new_files(version: str) -> None:
    with RealSlurm(version, a_lab_plan(), files={OURS: FILE}) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01", "gpu02")
        slurm.wait(
            lambda: slurm.must("sinfo", "-h", "-t", "idle", "-o", "%D").split()[:1] == ["2"], "idle nodes"
        )
        daemon = slurm.must("pgrep", "--exact", "slurmctld")
        submitted: list[str] = []
        for _ in range(TURNS):
            submitted += [
                slurm.must("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true", user=USER).strip()
                for _ in range(JOBS)
            ]
            slurm.wait(lambda: slurm.log("jobs") != "", "the first of them have ended")
            told = slurm.run("logrotate", "--force", "--state", "/lab/logrotate", "/etc/logrotate.conf")
            assert (told.code, told.err) == (0, "")
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "all jobs end")

        def recorded() -> list[str]:
            return sorted(re.findall(r"^JobId=(\d+) ", _all(slurm, "jobs.log"), re.MULTILINE), key=int)

        slurm.wait(lambda: recorded() == sorted(submitted, key=int), "one line for each job")
        assert slurm.path(f"{names.JOB_COMPLETIONS}.{TURNS - 1}.gz").exists()
        new = slurm.path("/var/log/slurm/slurmctld.log").read_text()
        assert "slurmctld version" not in new, "the log of the start is in a renamed file"
        assert "slurmctld version" in _all(slurm, "slurmctld.log")
        assert slurm.must("pgrep", "--exact", "slurmctld") == daemon, "no daemon was ended"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_file_is_read_without_an_error_before_slurm_runs(version: str) -> None:
    with RealSlurm(version, a_lab_plan(), files={OURS: FILE}) as slurm:
        told = slurm.run("logrotate", "--state", "/lab/logrotate", "/etc/logrotate.conf")
        assert (told.code, told.err) == (0, "")


def _all(slurm: RealSlurm, name: str) -> str:
    """The text of a log with its renamed and compressed files."""
    folder = slurm.path("/var/log/slurm")
    files = [
        path for path in folder.iterdir() if re.fullmatch(rf"{re.escape(name)}(\.\d+(\.gz)?)?", path.name)
    ]
    return "".join(
        gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for path in files
    )

"""Records of slurmdbd through the years: what is purged goes to files, and a file is read back."""

import pytest
from accounting import apply_accounts, with_accounting
from real_slurm import VERSIONS
from test_accounting import PEOPLE, _plan, _start_nodes, _submit

from gpucluster.plan import names

YEARS_S = 3 * 365 * 86400


@pytest.mark.parametrize("version", VERSIONS)
def test_old_records_go_to_files_and_a_file_is_read_back(version: str) -> None:
    """The limits of the rendered slurmdbd.conf, applied at once by `archive dump`; slurmdbd does it each day."""
    with with_accounting(version, _plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        _start_nodes(slurm, "gpu01")
        old, new = _submit(slurm, "vision", lasts=0), _submit(slurm, "vision", lasts=0)
        record = ("sacct", "-nPX", "-a", "-S", "2020-01-01", "-o", "jobid,account,state")
        both = {f"{job}|research|COMPLETED" for job in (old, new)}
        slurm.wait(lambda: set(slurm.run(*record).out.split()) == both, "both records")
        columns = ", ".join(
            f"time_{word}=time_{word}-{YEARS_S}" for word in ("submit", "eligible", "start", "end")
        )
        update = f"UPDATE lab_job_table SET {columns} WHERE id_job={old}"  # noqa: S608  numbers of this test
        slurm.must("mariadb", names.DATABASE, "--execute", update)
        slurm.must("sacctmgr", "--immediate", "archive", "dump")
        assert set(slurm.must(*record).split()) == {f"{new}|research|COMPLETED"}
        (file,) = [path.name for path in slurm.path(names.ARCHIVE_DIR).iterdir() if "job_table" in path.name]
        slurm.must("sacctmgr", "--immediate", "archive", "load", f"file={names.ARCHIVE_DIR}/{file}")
        assert set(slurm.must(*record).split()) == both

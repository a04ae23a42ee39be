"""Full and read-only file systems below the services of a machine, with real ones in namespaces of their own."""

import subprocess
from pathlib import Path

import pytest
from support.waiting import BOUND_S

from gpucluster.checks import each_path, machine, mounts
from gpucluster.checks.check import CheckResult, CheckStatus, Query, QueryOutput

PASS, FAIL = CheckStatus.PASS, CheckStatus.FAIL


def in_namespace(prepared: str, query: Query, *after: str) -> QueryOutput:
    """The answer to a query in a mount namespace, after these commands."""
    done = subprocess.run(
        ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", f'{prepared}\n"$@"', "sh", *query.argv, *after],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    return QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def of_disks(prepared: str, *paths: str) -> CheckResult:
    want = machine.Disks(paths=paths)
    (query,) = machine.query_disks(want)
    return machine.evaluate_disks(machine.parse_disks((in_namespace(prepared, query),)), want)


FULL = "mount -t tmpfs -o size=1m,mode=1777 none {path}; echo 1 >{path}/small; head -c 2M /dev/zero >{path}/'a file' 2>/dev/null"


@pytest.mark.parametrize("path", ["/run", "/var/tmp"])
def test_full_folder_names_its_largest_file_and_the_remedy_heals_it(path):
    """V9: /run was full, no cause was named, and 40 checks failed."""
    full = FULL.format(path=path)
    result = of_disks(full, path)
    assert (result.verdict, result.culprits, result.blocks) == (FAIL, (path,), True)
    assert result.found == f"{path} 100 %; the largest file is {path}/a file, of 1 MiB"
    remedy = f"ls -l '{path}/a file'; rm '{path}/a file'"
    assert result.remedy == f"on {{machine}}: {remedy}  # if nobody needs it"
    assert path not in of_disks(f"{full}\n({remedy}) >/dev/null", path).culprits


def test_nearly_full_folder_explains_no_other_fault():
    nearly = "mount -t tmpfs -o size=1m none /var/tmp; head -c 1000000 /dev/zero >/var/tmp/full"
    result = of_disks(nearly, "/var/tmp")
    assert (result.verdict, result.blocks, result.remedy) == (FAIL, False, "")


def test_full_file_system_is_told_once_and_each_path_on_it_is_a_culprit():
    both = FULL.format(path="/var/tmp") + "; mkdir /var/tmp/a"
    result = of_disks(both, "/var/tmp", "/var/tmp/a")
    assert result.culprits == ("/var/tmp", "/var/tmp/a")
    assert result.found.startswith("/var/tmp 100 %; the largest file")


@pytest.mark.parametrize("name", ["sub/deep", "$(printf 'new\\nline')"])
def test_file_in_a_folder_that_a_user_may_swap_or_with_a_strange_name_is_never_in_a_command(name):
    """A user who owns a folder below /tmp may replace it by a link to /etc before the remedy is typed."""
    prepared = (
        "mount -t tmpfs -o size=1m none /var/tmp; mkdir /var/tmp/sub; "
        f'head -c 2M /dev/zero >/var/tmp/"{name}" 2>/dev/null'
    )
    result = of_disks(prepared, "/var/tmp")
    assert (result.verdict, result.remedy) == (FAIL, "")


def test_answers_of_storage_come_although_run_is_full(tmp_path):
    """Regression: they lie in /run first, so `disk` and `fs.mount` were unknown where /run was full."""
    query = each_path.query_each("stat -f --format=%T", (str(tmp_path),))
    got = in_namespace(FULL.format(path="/run"), query)
    (answer,) = each_path.parse_each(got)
    assert (answer.path, answer.code) == (str(tmp_path), 0)


# --- read-only -------------------------------------------------------------------------------------------
def of_mounts(prepared: str, *paths: str) -> CheckResult:
    want = mounts.Mounts(mounts=(mounts.MountWant(path="/", types=(), source=""),), written=paths)
    (query,) = mounts.query_mounts(want)
    return mounts.evaluate_mounts(mounts.parse_mounts((in_namespace(prepared, query),)), want)


def test_read_only_folder_of_services_is_found_and_mounted_again(tmp_path):
    place = Path("/var/tmp")
    read_only = f"mount -t tmpfs -o ro none {place}"
    result = of_mounts(read_only, "/run", f"{place}/spool")
    assert (result.verdict, result.culprits) == (FAIL, (f"{place}/spool",))
    assert result.found == f"{place}/spool is on {place}, which is read-only"
    remedy = f"mount -o remount,rw {place}"
    assert result.remedy == f"on {{machine}}: {remedy}"
    assert of_mounts(f"{read_only}; {remedy}", "/run", f"{place}/spool").verdict is PASS


def test_read_only_root_is_one_fault():
    line = "1 0 8:1 / / ro - ext4 /dev/vda ro\n2 1 0:9 / /run rw - tmpfs tmpfs rw\n"
    want = mounts.Mounts(
        mounts=(mounts.MountWant(path="/", types=(), source=""),), written=("/", "/run", "/var/lib")
    )
    result = mounts.evaluate_mounts(mounts.parse_mounts((QueryOutput(code=0, stdout=line),)), want)
    assert (result.found, result.culprits) == ("/ is read-only", ("/",))

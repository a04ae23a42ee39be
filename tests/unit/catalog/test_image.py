"""Accounts of packages and agents are no names for users of the spec."""

import subprocess
from pathlib import Path

import pytest

from gpucluster.catalog.data_files import read_data
from gpucluster.catalog.image import account_owner

DATA = read_data("system-users.json")


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("ssm-user", "amazon-ssm-agent"),
        ("admin", "Ubuntu's server image"),
        ("ubuntu", "cloud-init"),
        ("ec2-instance-connect", "ec2-instance-connect"),
        ("munge", "munge"),
        ("slurm", "slurm"),
        ("root", "base-passwd"),
        ("sudo", "base-passwd"),
        ("vision", None),
    ],
)
def test_owner_of_a_name(name: str, owner: str | None) -> None:
    """Session Manager's agent writes `ssm-user ALL=(ALL) NOPASSWD:ALL`, also for a user of the spec."""
    assert account_owner(name) == owner


def test_every_account_of_base_passwd_here_is_known() -> None:
    for kind in ("passwd", "group"):
        file = Path(f"/usr/share/base-passwd/{kind}.master")
        if not file.exists():
            pytest.skip("this is no Debian")
        assert [line for line in file.read_text().splitlines() if not account_owner(line.split(":")[0])] == []


def test_every_account_that_the_dbus_and_ssh_packages_create_here_is_known() -> None:
    """Only accounts below uid 1000 of this machine: others belong to people."""
    listed = subprocess.run(
        ["/usr/bin/getent", "passwd", "messagebus", "sshd", "_apt"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in listed.stdout.splitlines() if not account_owner(line.split(":")[0])] == []


def test_every_row_has_its_source() -> None:
    assert DATA["date"]
    assert all(row["source"] and row["names"] for row in DATA["accounts"])

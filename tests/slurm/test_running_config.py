"""What people change in slurmctld by hand: found by one check of `validate`, and healed by the commands of its remedy."""

from dataclasses import dataclass, replace

import pytest
from asking import finding, heal
from real_slurm import VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan

from gpucluster.checks.check import CheckStatus
from gpucluster.slurm.config.render import render

CHECKS = ("ctl.conf", "part.up", "nodes.hw", "ctl.resv")
SPEC = (
    ('  version: "26.05"', '  version: "26.05"\n  licenses: {matlab: 3}'),
    ("default: true}", "default: true}\n  - {name: quick, pools: [h100], max_time: 30m, tier: 20, exclusive: true}"),
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A change by hand: the command, the check that finds it, a part of what it says."""

    command: str
    check: str
    found: str


def _read_and_put_back(key: str, value: int) -> str:
    """slurmctld reads another slurm.conf, and the file is as before. `scontrol reconfigure` returns before it has read it."""
    conf = "/etc/slurm/slurm.conf"
    return (
        f"cp {conf} /tmp/before; sed -i /^{key}=/d {conf}; sed -i '1a {key}={value}' {conf}; scontrol reconfigure; "
        f"until scontrol show config | grep -q '^{key} *= {value} '; do sleep 0.1; done; cp /tmp/before {conf}"
    )


CHANGES = (
    Change("scontrol setdebug debug2", "ctl.conf", "slurmctlddebug is debug2, not info"),
    Change("scontrol setdebugflags +gres", "ctl.conf", "debugflags is Gres, not unset"),
    Change("scontrol setdebugflags +gres; scontrol setdebug debug", "ctl.conf", "slurmctlddebug is debug, not info"),
    Change(_read_and_put_back("MessageTimeout", 77), "ctl.conf", "messagetimeout is 77 sec, not 30"),
    Change(_read_and_put_back("KillWait", 78), "ctl.conf", "slurmctld has read another slurm.conf"),
    Change("scontrol update partition=quick default=yes", "part.up", "gpu is not the default"),
    Change("scontrol update partition=gpu state=down", "part.up", "gpu is DOWN"),
    Change("scontrol update partition=gpu maxtime=60", "part.up", "gpu has maxtime 01:00:00, not UNLIMITED"),
    Change("scontrol update partition=gpu prioritytier=7", "part.up", "gpu has prioritytier 7, not 1"),
    Change("scontrol update partition=quick oversubscribe=no", "part.up", "quick has oversubscribe NO, not EXCLUSIVE"),
    Change("scontrol update partition=gpu allowgroups=root", "part.up", "gpu has allowgroups root, not all"),
    Change("scontrol update partition=gpu defmempercpu=100", "part.up", "gpu has defmempercpu 100"),
    Change("scontrol update partition=gpu denyaccounts=root", "part.up", "gpu has denyaccounts root, not unset"),
    Change("scontrol update partition=gpu nodes=gpu01", "part.up", "gpu has 1 nodes, not 4"),
    Change("scontrol create partitionname=mine nodes=gpu01 state=up", "part.up", "mine is not in the plan"),
    Change("scontrol delete partitionname=quick", "part.up", "quick is missing"),
    Change("scontrol update nodename=gpu01 weight=9", "nodes.hw", "gpu01: "),
    Change("scontrol update nodename=gpu02 activefeatures=mine availablefeatures=mine", "nodes.hw", "Features=mine"),
)  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_change_by_hand_is_found_by_one_check_and_healed_by_its_remedy(version: str) -> None:
    with RealSlurm(version, a_lab_plan(*SPEC), nodes=False) as slurm:
        slurm.start_controller()

        def unhealthy() -> dict[str, str]:
            found = {check: finding(slurm, check) for check in CHECKS}
            return {check: one.found for check, one in found.items() if one.verdict is not CheckStatus.PASS}

        assert unhealthy() == {}
        for change in CHANGES:
            slurm.must("sh", "-ec", change.command)
            assert unhealthy().keys() == {change.check}, (change.command, unhealthy())
            found = finding(slurm, change.check)
            assert (found.verdict, change.found in found.found) == (CheckStatus.FAIL, True), found.found
            heal(slurm, change.check)
            slurm.wait(lambda: unhealthy() == {}, f"healed: {change.command}: {found.remedy}")

        when = ("StartTime=now", "Duration=60", "Nodes=gpu03", "Users=root")
        slurm.must("scontrol", "create", "reservation", "ReservationName=maint", *when)
        assert finding(slurm, "ctl.resv").verdict is CheckStatus.WARN
        assert "maint holds gpu03" in finding(slurm, "ctl.resv").found
        slurm.must("scontrol", "delete", "reservation=maint")
        assert unhealthy() == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_on_aws_has_the_rendered_configuration(version: str) -> None:
    """Its Prolog and its Epilog have different limits, and 26.05 shows them by other keys than 24.11 (S42)."""
    with RealSlurm(version, a_plan(), nodes=False) as slurm:
        slurm.start_controller()
        found = finding(slurm, "ctl.conf")
        assert found.verdict is CheckStatus.PASS, found.found
        shown = slurm.show("config")[0]
        keys = {"24.11": ("PrologEpilogTimeout",), "26.05": ("PrologTimeout", "EpilogTimeout")}[version]
        longest = int(shown["ResumeTimeout"].split()[0])
        assert [int(shown[key].split()[0]) for key in keys] == [longest + 120, 120][: len(keys)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_feature_of_a_pool_is_there_after_a_reconfigure(version: str) -> None:
    """`pools[].features` is of the class live."""
    more = ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", features: [ib]}')
    with RealSlurm(version, a_lab_plan(), nodes=False) as slurm:
        slurm.start_controller()
        assert "ib" not in slurm.show("nodes")[0]["AvailableFeatures"].split(",")
        plan = replace(a_lab_plan(more), slurm=replace(a_lab_plan(more).slurm, version=version))
        text = next(a.content for a in render(plan) if a.path == "slurm/slurm.conf").decode()
        slurm.write("/etc/slurm/slurm.conf", text)
        slurm.must("scontrol", "reconfigure")
        slurm.wait(
            lambda: "ib" in slurm.show("nodes")[0]["ActiveFeatures"].split(","), "the feature is active"
        )
        assert slurm.errors() == []

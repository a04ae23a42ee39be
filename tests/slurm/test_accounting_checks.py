"""What people change in slurmdbd by hand: found by one check of `validate`, and healed by the commands of its remedy.

`GPUCLUSTER_RECORD=1 pytest tests/slurm/test_accounting_checks.py` writes tests/recorded/checks/VERSION/accounting.json.
"""

import dataclasses
import json
import os
import shlex
from pathlib import Path

import pytest
from accounting import apply_accounts, start_slurmdbd, with_accounting
from asking import answers, expected, finding, heal
from real_slurm import VERSIONS
from support.account_rows import a_site_plan

from gpucluster.checks.check import CheckStatus

RECORDED = Path(__file__).parents[1] / "recorded/checks"
CHECKS = ("acct.db", "acct.qos", "acct.tree")
BESIDE = ("part.up", "nodes.hw")  # with the settings of accounting
PEOPLE = ("vision", "speech", "recsys")
CHANGES = (  # by hand, the check that finds it, a part of what it says
    ("modify account where name=research set fairshare=9", "acct.tree", "account research: fairshare is 9, not 2"),
    ("modify account where name=research set GrpTRES=gres/gpu=99", "acct.tree", "GrpTRES is gres/gpu=99, not gres/gpu=24"),
    ("modify user where name=vision account=research set MaxJobs=1", "acct.tree", "user research/vision has MaxJobs 1"),
    ("modify account where name=product set MaxTRESMins=cpu=7", "acct.tree", "account product has MaxTRESMins cpu=7"),
    ("delete user where name=speech account=research", "acct.tree", "user speech of account research: add"),
    ("modify user where name=vision account=research set qos+=debug", "acct.tree", "user vision of account research: qos is debug,normal,urgent, not normal,urgent"),
    ("modify user where name=vision account=research set defaultqos=urgent", "acct.tree", "defaultqos is urgent, not normal"),
    ("modify user where name=vision account=research set fairshare=1000", "acct.tree", "fairshare is 1000, not 1"),
    ("modify user where name=vision set adminlevel=Admin", "acct.tree", "user vision has AdminLevel Administrator"),
    ("modify user where name=vision account=research set GrpTRES=node=1", "acct.tree", "user research/vision has GrpTRES node=1"),
    ("modify account where name=root set GrpTRES=gres/gpu=8", "acct.tree", "account root has GrpTRES gres/gpu=8"),
    ("modify qos where name=urgent set GrpTRES=node=1", "acct.qos", "qos urgent has GrpTRES node=1"),
    ("modify qos where name=urgent set description='gpucluster other' priority=1", "acct.qos", "the QOS urgent belongs to the cluster other"),
    ("modify qos where name=urgent set priority=5", "acct.qos", "QOS urgent: priority is 5, not 1000"),
    ("modify qos where name=debug set MaxTRESPerUser=cpu=99", "acct.qos", "QOS debug: MaxTRESPerUser is cpu=99, not cpu=8"),
    ("add coordinator account=research names=vision", "acct.tree", "user vision is a coordinator of account research"),
    ("modify account where name=science set Flags=UsersAreCoords", "acct.tree", "account science has Flags UsersAreCoords"),
    ("modify account where name=research set GrpSubmitJobs=5", "acct.tree", "account research has GrpSubmitJobs 5"),
    ("modify user where name=vision account=research set Priority=9 MaxJobsAccrue=2", "acct.tree", "user research/vision has MaxJobsAccrue 2"),
    ("modify account where name=product set GrpJobsAccrue=3", "acct.tree", "account product has GrpJobsAccrue 3"),
    ("modify qos where name=urgent set GraceTime=600", "acct.qos", "qos urgent has GraceTime 600"),
    ("modify qos where name=urgent set UsageFactor=0", "acct.qos", "qos urgent has UsageFactor 0"),
    ("modify qos where name=urgent set UsageThreshold=0.5 LimitFactor=2", "acct.qos", "qos urgent has LimitFactor 2"),
    ("modify qos where name=urgent set MinPrioThreshold=9 MaxJobsAccruePU=1", "acct.qos", "qos urgent has MaxJobsAccruePU 1"),
    ("modify qos where name=urgent set MaxTRESRunMinsPU=cpu=5 PreemptExemptTime=60", "acct.qos", "qos urgent has PreemptExemptTime"),
    ("modify qos where name=urgent set PreemptMode=requeue", "acct.qos", "qos urgent has PreemptMode REQUEUE"),
    ("modify qos where name=urgent set Flags=DenyOnLimit", "acct.qos", "qos urgent has Flags DENY_LIMIT"),
    ("modify qos where name=product-normal set Flags+=DenyOnLimit", "acct.qos", "qos product-normal has Flags DENY_LIMIT"),
    ("modify qos where name=normal set MaxWall=10 GrpJobs=3", "acct.qos", "qos normal has GrpJobs 3"),
)  # fmt: skip

RECORDED_CHANGES = (CHANGES[0][0], CHANGES[-1][0])


@pytest.mark.parametrize("version", VERSIONS)
def test_change_by_hand_is_found_by_one_check_and_healed_by_its_remedy(version: str) -> None:
    with with_accounting(version, a_site_plan(), *PEOPLE) as slurm:
        apply_accounts(slurm)
        slurm.wait(lambda: finding(slurm, "acct.db").is_healthy, "slurmctld is registered")

        def unhealthy() -> dict[str, str]:
            found = {check: finding(slurm, check) for check in (*CHECKS, *BESIDE)}
            return {check: one.found for check, one in found.items() if one.verdict is not CheckStatus.PASS}

        assert unhealthy() == {}
        recorded = {"healthy": {check: answers(slurm, expected(slurm, check)) for check in CHECKS}}
        for command, check, said in CHANGES:
            slurm.must("sacctmgr", "--immediate", *shlex.split(command))
            assert unhealthy().keys() == {check}, (command, unhealthy())
            found = finding(slurm, check)
            assert (found.verdict, said in found.found) == (CheckStatus.FAIL, True), found.found
            if command in RECORDED_CHANGES:
                recorded[command] = {check: answers(slurm, expected(slurm, check))}
            heal(slurm, check)
            assert unhealthy() == {}, command
        slurm.must(
            *[
                "sacctmgr",
                "--immediate",
                "add",
                "account",
                "guests",
                "organization=site",
                "description=by_hand",
            ]
        )
        assert finding(slurm, "acct.tree").verdict is CheckStatus.WARN
        assert finding(slurm, "acct.tree").found == "not in the plan: account guests"
        heal(slurm, "acct.tree")
        assert unhealthy() == {}
        slurm.must("sacctmgr", "--immediate", "add", "user", "mallory", "account=product")
        assert finding(slurm, "acct.tree").verdict is CheckStatus.WARN
        assert finding(slurm, "acct.tree").found == "not in the plan: user mallory of account product"
        heal(slurm, "acct.tree")
        assert unhealthy() == {}

        slurm.must("pkill", "--exact", "slurmdbd")
        slurm.wait(lambda: finding(slurm, "acct.db").found == "slurmdbd does not answer", "it is away")
        recorded["slurmdbd is away"] = {"acct.db": answers(slurm, expected(slurm, "acct.db"))}
        start_slurmdbd(slurm)
        slurm.wait(lambda: finding(slurm, "acct.db").is_healthy, "it is back, and knows slurmctld")
        if os.environ.get("GPUCLUSTER_RECORD"):
            rows = {
                name: {check: [dataclasses.asdict(one) for one in got] for check, got in of.items()}
                for name, of in recorded.items()
            }
            (RECORDED / version / "accounting.json").write_text(json.dumps(rows) + "\n")

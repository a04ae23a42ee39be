"""Every value of `extra` that `check` accepts is taken by the real slurmd and slurmctld, without one error line."""

import pytest
from extra_values import Trials, accepted, culprits, rounds, settings
from real_slurm import VERSIONS, RealSlurm
from support.builders import a_lab_plan

LEAST = {"24.11": 1500, "26.05": 1500}  # settings that are tried


@pytest.mark.parametrize("version", VERSIONS)
def test_slurm_takes_what_check_accepts(version: str) -> None:
    """`check` accepted 355 values of 79 keys with which no daemon starts: FirstJobId=0, KillWait=65536, State=SLEEPING."""
    tried = accepted(version)
    assert LEAST[version] < len(tried) < len(settings(version)) / 2
    with RealSlurm(version, a_lab_plan(), nodes=False) as slurm:
        slurm.start_munge()
        trials = Trials(slurm)
        for program in (trials.of_slurmd, trials.of_slurmctld):
            refused = {one: said for group in rounds(tried) for one, said in culprits(group, program).items()}
            assert not refused, "\n".join(f"{one}: {said[0]}" for one, said in sorted(refused.items()))


def test_a_refused_value_is_found_among_the_others() -> None:
    """The halving names the one setting that the programs refuse: the test above can fail."""
    version = VERSIONS[-1]
    tried = next(rounds(accepted(version)))
    with RealSlurm(version, a_lab_plan(), nodes=False) as slurm:
        slurm.start_munge()
        bad = slurm.path("/etc/slurm/bad")

        def program(chosen: object) -> list[str]:
            bad.write_text(str(chosen))
            return ["refused"] if "KillWait" in bad.read_text() else []

        assert [one.key for one in culprits(tried, program)] == ["KillWait"]

"""The time limits of Prolog and Epilog in slurm.conf. Without one slurmd waits for a Prolog that hangs until the job ends (S42)."""

from dataclasses import dataclass

from gpucluster import catalog
from gpucluster.plan import defaults
from gpucluster.plan.model import SlurmPlan

LONGEST_S = 65_533  # 16 bits; 65,534 means no limit (S42)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitLine:
    """A key with its seconds."""

    key: str
    seconds: str


def limits(plan: SlurmPlan, resume_timeout_s: int) -> tuple[LimitLine, ...]:
    """Return one line, or two where the limits differ and the version has a key for each.

    On AWS the limit of the Prolog is longer than a boot, because it is the limit of PrologSlurmctld, too: the waiter.
    """
    epilog_s = prolog_s = int(defaults.PROLOG_LIMIT_S.value)
    if plan.aws is not None:
        prolog_s = min(resume_timeout_s + int(defaults.WAITER_MARGIN_S.value), LONGEST_S)
    has_both = "prologtimeout" in catalog.slurm_facts(plan.slurm.version).keys["slurm.conf"]
    if has_both and prolog_s != epilog_s:
        return _line("PrologTimeout", prolog_s), _line("EpilogTimeout", epilog_s)
    return (_line("PrologEpilogTimeout", prolog_s),)


def _line(key: str, seconds: int) -> LimitLine:
    return LimitLine(key=key, seconds=str(seconds))

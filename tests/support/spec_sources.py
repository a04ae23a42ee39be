"""A spec that was reviewed and is published, and what it accepts."""

from gpucluster.checks.acceptances import Acceptances
from gpucluster.checks.reviewed_spec import Order, Reviewed
from gpucluster.plan.spec_source import SpecSource

SOURCE = SpecSource(spec="a" * 64, plan="b" * 64, commit="c" * 40, dirty=False, version="2.0")
REVIEWED = Reviewed(
    file="stacks/a.yaml",
    given=SOURCE,
    published=SOURCE,
    place="the bundle",
    order=Order.UNKNOWN,
    publish="pulumi up",
    commit="git commit",
    newer="git merge",
)
ACCEPTED = Acceptances(file="stacks/a.yaml", count=2, first="2027-05-31", ended=())

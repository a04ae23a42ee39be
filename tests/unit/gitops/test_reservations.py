"""What `diff` says of a reservation that slurmctld cannot change: the agent deletes and makes it, if no job uses it."""

import pytest
from support.builders import changed
from support.reservation_rows import RESERVED
from support.reviewed import a_diff

from gpucluster.slurm.recorded import RECORDED
from gpucluster.slurm.request_table import ids

_KEEP = "those that name a changed reservation keep it as it was: Slurm deletes no reservation that a job uses or names"
_DEMO = "duration: 1h, users: [vision]}"


@pytest.mark.parametrize(
    ("new", "is_made_anew"),
    [
        ("duration: 1h, users: [speech]}", True),
        ("duration: 1h, users: [vision], maint: true}", True),
        ("duration: 1h, users: [vision], partition: gpu}", True),
        ("duration: 2h, users: [vision]}", False),
    ],
)
def test_reservation_that_is_made_anew_stays_while_jobs_name_it(new: str, *, is_made_anew: bool) -> None:
    """Regression: a user who may not use it any more was not spoken of."""
    text = RESERVED.replace(
        "  - {name: vision, uid: 5001}\n", "  - {name: vision, uid: 5001}\n  - {name: speech, uid: 5002}\n"
    )
    found = a_diff(text, changed(text, (_DEMO, new))).effects
    assert found is not None
    assert (_KEEP in found.queued) is is_made_anew
    assert "those that would run into a reservation wait until its end" in found.queued
    assert all({"reservation-removed", "reservation-used"} <= {*ids(version)} for version in RECORDED)

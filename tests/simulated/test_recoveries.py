"""20,000 recoveries of closed slots: none is opened and then powered down before Slurm could start a job on it."""

import pytest
from hypothesis import HealthCheck, given, seed, settings
from support.recoveries import RECOVERIES, Recovery, stays_open

SHARDS, EACH = 8, 2_500


@pytest.mark.parametrize("shard", range(SHARDS))
def test_undrained_slots_stay_open(shard: int) -> None:
    @seed(shard)
    @settings(max_examples=EACH, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(recovery=RECOVERIES)
    def any_recovery(recovery: Recovery) -> None:
        stays_open(recovery)

    any_recovery()

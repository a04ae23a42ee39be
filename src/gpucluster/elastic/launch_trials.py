"""The daemon tries its launches by dry runs, one after another, and publishes EC2's answers for `status` and `validate`."""

from collections.abc import Callable, Mapping

from gpucluster.cloud.port import CloudError, Fault, TrialPort
from gpucluster.elastic.decide.launch_trials import PAUSE_S, next_trial, trial_key
from gpucluster.elastic.decide.offers import Offer
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.executors import Executor
from gpucluster.elastic.launch_calls import trial_call
from gpucluster.elastic.model import LaunchTrial

_NO_ANSWER = frozenset({Fault.THROTTLED, Fault.LOST})
_OF_PARAMETERS = (
    "InvalidParameterValue"  # counts as THROTTLED for a profile, which may be new (`cloud.faults`)
)
_UNTRIED = frozenset(
    {Fault.NO_CAPACITY, Fault.QUOTA}
)  # no matter of a dry run: rights and parameters are good


class LaunchTrials:
    """One per daemon. `publish` gets all answers after each one. Only the daemon's thread calls `look`."""

    def __init__(
        self,
        cluster: str,
        port: TrialPort,
        executor: Executor,
        publish: Callable[[Mapping[str, LaunchTrial]], None],
    ) -> None:
        self._cluster, self._port, self._executor, self._publish = cluster, port, executor, publish
        self._answers: Mapping[str, LaunchTrial] = {}
        self._tried_at = float("-inf")
        self._running = False

    def look(self, now: float, world: Callable[[], World | None]) -> None:
        """Try the next offer, if one is due. `world` is only called if a call may be."""
        if self._running or 0 <= now - self._tried_at < PAUSE_S:
            return
        seen = world()
        offer = None if seen is None else next_trial(seen, self._answers, self._tried_at)
        if offer is None:
            return
        self._running, self._tried_at = True, now
        self._executor.submit(lambda: self._ask(offer, now), lambda answer: self._keep(offer, answer))

    def _ask(self, offer: Offer, now: float) -> LaunchTrial | None:
        try:
            self._port.try_launch(trial_call(self._cluster, offer.pool, offer.spec))
        except CloudError as error:
            if error.fault in _NO_ANSWER and error.code != _OF_PARAMETERS:
                return None
            return LaunchTrial(at=now, words="" if error.fault in _UNTRIED else str(error))
        return LaunchTrial(at=now)

    def _keep(self, offer: Offer, answer: LaunchTrial | None) -> None:
        self._running = False
        if answer is not None:
            self._answers = {**self._answers, trial_key(offer): answer}
            self._publish(self._answers)

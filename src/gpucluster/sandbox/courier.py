"""EventBridge in short: news of instances go to the targets of the rules that match, if the queue lets them in."""

import json
import logging

from gpucluster.cloud.model import CloudModel
from gpucluster.sandbox import policies
from gpucluster.sandbox.backends import Moto
from gpucluster.sandbox.policies import Need, UnknownPolicyPart

log = logging.getLogger(__name__)
_SERVICE = "events.amazonaws.com"


def deliver(model: CloudModel, moto: Moto, now: float) -> None:
    """Carry every event that is due. A queue whose policy does not let the rule write drops it, as AWS does."""
    for body in model.take_news(now):
        for rule, target in moto.matching(json.loads(body)):
            if _may_write(moto, rule, target):
                moto.send(target, body)
            else:
                log.warning("%s does not let %s write", target, rule)


def _may_write(moto: Moto, rule: str, queue: str) -> bool:
    text = moto.queue_policy(queue)
    need = Need(action="sqs:SendMessage", resource=queue, context={"aws:sourcearn": (rule,)})
    try:
        return bool(text) and policies.allows_service(policies.parse(text), _SERVICE, need)
    except UnknownPolicyPart as part:
        log.warning("%s: the sandbox does not know %s in its policy", queue, part)
        return False

"""Delivery of events: each event about an instance goes to the queues of the matching rules."""

import json
import logging

from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.iam import policies
from gpucluster.sandbox.aws.iam.policies import Need, UnknownPolicyPart
from gpucluster.sandbox.aws.moto_state import Moto

log = logging.getLogger(__name__)
_SERVICE = "events.amazonaws.com"


def deliver(model: CloudModel, moto: Moto, now: float) -> None:
    """Deliver every event that is due. An event is dropped if the queue's policy does not allow the rule to write, as on AWS."""
    for body in model.take_events(now):
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

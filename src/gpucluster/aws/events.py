"""What AWS tells of instances beside the API: four rules of EventBridge into one queue, which the daemon reads.

A rule cannot choose instances by tag: other clusters' news come too, and the daemon passes over ids that it does not know.
"""

import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.policies import events_to

KEPT_S = 3600  # a notice is worth nothing an hour later, and the daemon's own look finds what is gone
HIDDEN_S = 30  # until it is in the journal
POLL_S = 20  # SQS's longest wait

PATTERNS: Mapping[str, Mapping[str, Any]] = {
    "spot": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
    "rebalance": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance Rebalance Recommendation"]},
    "state": {  # a machine that went without a word; the daemon's own look finds it too, later
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": ["shutting-down", "stopped", "stopping", "terminated"]},
    },
    "maintenance": {
        "source": ["aws.health"],
        "detail-type": ["AWS Health Event"],
        "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    },
}


class Events(pulumi.ComponentResource):
    """The queue of interruptions. No name is set: one that was deleted is taken for a minute (T41)."""

    queue: Output[str]  # URL
    queue_arn: Output[str]

    def __init__(self, cluster: str, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Events", cluster, None, opts)
        child = ResourceOptions(parent=self)
        queue = aws.sqs.Queue(
            f"{cluster}-events",
            message_retention_seconds=KEPT_S,
            visibility_timeout_seconds=HIDDEN_S,
            receive_wait_time_seconds=POLL_S,
            sqs_managed_sse_enabled=True,
            opts=child,
        )
        rules = [_rule(f"{cluster}-{name}", pattern, queue, child) for name, pattern in PATTERNS.items()]
        policy = Output.all(queue.arn, *(rule.arn for rule in rules)).apply(
            lambda arns: events_to(arns[0], arns[1:])
        )
        aws.sqs.QueuePolicy(f"{cluster}-events", queue_url=queue.url, policy=policy, opts=child)
        self.queue, self.queue_arn = queue.url, queue.arn
        self.register_outputs({"queue": queue.url})


def _rule(
    name: str, pattern: Mapping[str, Any], queue: aws.sqs.Queue, child: ResourceOptions
) -> aws.cloudwatch.EventRule:
    rule = aws.cloudwatch.EventRule(name, event_pattern=json.dumps(pattern, sort_keys=True), opts=child)
    aws.cloudwatch.EventTarget(name, rule=rule.name, arn=queue.arn, target_id="queue", opts=child)
    return rule

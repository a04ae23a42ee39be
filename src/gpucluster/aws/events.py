"""Events of instances: four EventBridge rules send them to one SQS queue, which the daemon reads.

A rule cannot select instances by tag. So events of other clusters arrive, too, and the daemon ignores unknown instances.
"""

import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.plan.store_policies import PATTERNS, POLL_S, RETENTION_S, VISIBILITY_S, events_to


class Events(pulumi.ComponentResource):
    """The queue of events. It has no fixed name: the name of a deleted queue is blocked for a minute (T41)."""

    queue: Output[str]  # URL
    queue_arn: Output[str]

    def __init__(self, cluster: str, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Events", cluster, None, opts)
        queue = declare_queue(cluster, "events", ResourceOptions(parent=self))
        self.queue, self.queue_arn = queue.url, queue.arn
        self.register_outputs({"queue": queue.url})


def declare_queue(
    cluster: str, word: str, child: ResourceOptions, *, name: str | None = None
) -> aws.sqs.Queue:
    """Declare the queue with its rules and its policy. A fixed `name` is for a reader that cannot be told the drawn one."""
    queue = aws.sqs.Queue(
        f"{cluster}-{word}",
        name=name,
        message_retention_seconds=RETENTION_S,
        visibility_timeout_seconds=VISIBILITY_S,
        receive_wait_time_seconds=POLL_S,
        sqs_managed_sse_enabled=True,
        opts=child,
    )
    before = "" if word == "events" else f"{word}-"
    rules = [_rule(f"{cluster}-{before}{one}", pattern, queue, child) for one, pattern in PATTERNS.items()]
    policy = Output.all(queue.arn, *(rule.arn for rule in rules)).apply(
        lambda arns: events_to(arns[0], arns[1:])
    )
    aws.sqs.QueuePolicy(f"{cluster}-{word}", queue_url=queue.url, policy=policy, opts=child)
    return queue


def _rule(
    name: str, pattern: Mapping[str, Any], queue: aws.sqs.Queue, child: ResourceOptions
) -> aws.cloudwatch.EventRule:
    rule = aws.cloudwatch.EventRule(name, event_pattern=json.dumps(pattern, sort_keys=True), opts=child)
    aws.cloudwatch.EventTarget(name, rule=rule.name, arn=queue.arn, target_id="queue", opts=child)
    return rule

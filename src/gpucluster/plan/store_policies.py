"""What the program declares of the cluster's bucket, queue and EFS: policies and settings. `checks/` compares the cloud with it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpucluster.plan.names import CONTROL_KEY, ORDERS_KEY, STATUS_KEY

Statement = dict[str, Any]

# The rights of a client of EFS: to mount, to write, and to be root there (T47)
EFS_CLIENT = (
    "elasticfilesystem:ClientMount",
    "elasticfilesystem:ClientRootAccess",
    "elasticfilesystem:ClientWrite",
)
RETENTION_S = 3600  # an older notice is useless, and the reconciler of the daemon finds terminated instances
VISIBILITY_S = 30  # time to write a message to the journal
POLL_S = 20  # the longest that SQS allows

QUEUE: Mapping[str, str] = {  # SQS's names of the attributes
    "MessageRetentionPeriod": str(RETENTION_S),
    "VisibilityTimeout": str(VISIBILITY_S),
    "ReceiveMessageWaitTimeSeconds": str(POLL_S),
    "SqsManagedSseEnabled": "true",
}
QUEUE_DEFAULTS: Mapping[str, str] = {"DelaySeconds": "0"}  # SQS's own, which the program does not declare

# The rules of EventBridge that send to the queue
PATTERNS: Mapping[str, Mapping[str, Any]] = {
    "spot": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
    "rebalance": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance Rebalance Recommendation"]},
    "state": {  # an instance that ended without a notice; the daemon would find it later
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


# The daemon and the agent write these objects again and again, and the bucket keeps every version.
EXPIRING: Mapping[str, str] = {"control": CONTROL_KEY, "orders": ORDERS_KEY, "status": STATUS_KEY}
OLD_VERSION_DAYS = 30


def only_tls(bucket_arn: str) -> str:
    """Return the bucket policy that denies requests without TLS."""
    statement = {
        "Sid": "OnlyTls",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket_arn, f"{bucket_arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return document(statement)


def only_machines(file_system_arn: str) -> str:
    """Return the policy of an EFS: a client needs TLS, a mount target, and a role with the rights in its own policy.

    Both statements deny, and no statement allows. So a client without a role is refused, for example a program of a job.
    """
    statements = [
        {
            "Sid": sid,
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": list(EFS_CLIENT),
            "Resource": file_system_arn,
            "Condition": {"Bool": {key: "false"}},
        }
        for sid, key in (
            ("OnlyTls", "aws:SecureTransport"),
            ("OnlyMountTargets", "elasticfilesystem:AccessedViaMountTarget"),
        )
    ]
    return document(*statements)


def events_to(queue_arn: str, rule_arns: Sequence[str]) -> str:
    """Return the queue policy: only the EventBridge rules of this cluster send messages."""
    statement = {
        "Sid": "Events",
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": sorted(rule_arns)}},
    }
    return document(statement)


def document(*statements: Statement) -> str:
    """Return the canonical text of a policy."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)}, sort_keys=True)

"""The queue over loopback: EventBridge's rules, the queue's policy, the head's role, and SqsNotices of boto3."""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.clouds import RunningCloud, a_network, running_cloud

from gpucluster.cloud.eventbridge import SPOT_WARNING
from gpucluster.cloud.port import CloudError, Fault, InstanceState, NoticePort, QueueNotice
from gpucluster.cloud.queue import SqsNotices
from gpucluster.plan.messages import NoticeKind
from gpucluster.plan.store_policies import PATTERNS, document, events_to
from gpucluster.sandbox.aws.ec2.state.client import ModelNotices
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.events.delivery import deliver

pytestmark = pytest.mark.loopback


@dataclass
class Post:
    """A cloud with the program's rules and queue, one running spot instance, and two readers of the same news."""

    cloud: RunningCloud
    url: str
    arn: str
    instance: str

    @property
    def model(self) -> CloudModel:
        return self.cloud.model

    @property
    def sqs(self) -> Any:
        return self.cloud.client("sqs")

    def deliver(self) -> None:
        self.cloud.api.deliver(self.cloud.clock.now)

    def notices(self) -> SqsNotices:
        return SqsNotices("us-east-1", self.url, lambda: self.sqs)


@pytest.fixture(scope="module")
def made() -> Generator[Post, None, None]:
    with running_cloud() as cloud:
        network = a_network(cloud)
        sqs, events = cloud.client("sqs"), cloud.client("events")
        url = sqs.create_queue(QueueName="burst-events", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
        arn = "arn:aws:sqs:us-east-1:123456789012:burst-events"
        rules: list[str] = []
        for name, pattern in PATTERNS.items():
            rules.append(events.put_rule(Name=name, EventPattern=json.dumps(pattern))["RuleArn"])
            events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": events_to(arn, rules)})
        (one,) = cloud.client("ec2").run_instances(
            LaunchTemplate={"LaunchTemplateId": network.template, "Version": "1"},
            SubnetId=network.subnets["us-east-1a"],
            InstanceMarketOptions={"MarketType": "spot"},
            MinCount=1,
            MaxCount=1,
        )["Instances"]
        cloud.clock.move(600)
        assert cloud.model.describe((one["InstanceId"],), cloud.clock.now)[0].state is InstanceState.RUNNING
        yield Post(cloud, url, arn, one["InstanceId"])


@pytest.fixture
def post(made: Post) -> Post:
    while left := made.sqs.receive_message(QueueUrl=made.url, MaxNumberOfMessages=10).get("Messages"):
        for message in left:
            made.sqs.delete_message(QueueUrl=made.url, ReceiptHandle=message["ReceiptHandle"])
    made.model.take_events(made.cloud.clock.now + 1e6)
    made.model.clear()
    return made


def kinds(notices: tuple[QueueNotice, ...]) -> list[tuple[str, NoticeKind]]:
    return [(t.instance, t.notice.kind) for t in notices]


def test_notice_passes_rule_policy_and_queue(post: Post):
    post.cloud.control.interrupt(post.instance, 86400)
    post.cloud.control.rebalance(post.instance)
    post.cloud.control.maintain(post.instance, after_s=7200)
    post.deliver()
    reader = post.notices()
    notices = reader.receive(0)
    assert sorted(kinds(notices)) == sorted((post.instance, kind) for kind in NoticeKind)
    reader.forget([t.handle for t in notices])
    assert reader.receive(0) == ()
    assert reader.unreadable == 0


def test_notice_that_is_not_deleted_is_delivered_again(post: Post):
    post.model.recommend(post.instance, post.cloud.clock.now)
    post.deliver()
    assert kinds(post.notices().receive(0)) == kinds(post.notices().receive(0)) != []


def test_unreadable_message_is_deleted_and_counted(post: Post):
    for body in ("{", json.dumps({"detail-type": SPOT_WARNING, "detail": {"instance-id": "../../etc"}})):
        post.sqs.send_message(QueueUrl=post.url, MessageBody=body)
    reader = post.notices()
    assert reader.receive(0) == ()
    assert reader.unreadable == 2
    assert reader.receive(0) == ()
    assert reader.unreadable == 2, "it was deleted"


def test_message_about_two_instances_is_deleted_once(post: Post):
    entities = [{"entityValue": f"i-{n:017x}"} for n in range(2)]
    detail = {"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": entities}
    body = json.dumps({"detail-type": "AWS Health Event", "detail": detail})
    post.sqs.send_message(QueueUrl=post.url, MessageBody=body)
    reader = post.notices()
    notices = reader.receive(0)
    assert len(notices) == 2
    reader.forget([t.handle for t in notices])
    assert reader.receive(0) == ()


def test_stopped_queue_delivers_nothing(post: Post):
    post.cloud.control.interrupt(post.instance, 86400, silent=["queue"])
    post.deliver()
    assert post.notices().receive(0) == ()


def test_event_is_lost_without_a_queue_policy(post: Post):
    policy = post.sqs.get_queue_attributes(QueueUrl=post.url, AttributeNames=["Policy"])["Attributes"][
        "Policy"
    ]
    post.sqs.set_queue_attributes(
        QueueUrl=post.url, Attributes={"Policy": events_to(post.arn, ["arn:other"])}
    )
    try:
        post.model.recommend(post.instance, post.cloud.clock.now)
        post.deliver()
        assert post.notices().receive(0) == ()
    finally:
        post.sqs.set_queue_attributes(QueueUrl=post.url, Attributes={"Policy": policy})


@pytest.mark.parametrize("over", ["sqs", "model"])
def test_t41_events_come_twice_out_of_order_and_one_is_lost(post: Post, over: str):
    """What reads them must take the same notice twice as one, and a lost one must not matter."""
    post.cloud.control.set_delivery(lose=1, twice_every=2, shuffle=True)
    for _ in range(5):
        post.model.recommend(post.instance, post.cloud.clock.now)
    reader: NoticePort = ModelNotices(post.model, post.cloud.clock)
    if over == "sqs":
        post.deliver()
        reader = post.notices()
    notices = reader.receive(0)
    assert len(notices) == 4 + 2
    assert len({(t.instance, t.notice) for t in notices}) == 1
    reader.forget([t.handle for t in notices])
    assert reader.receive(0) == ()


def test_t41_a_name_is_taken_for_a_minute_after_its_queue(post: Post):
    url = post.sqs.create_queue(QueueName="short")["QueueUrl"]
    post.sqs.delete_queue(QueueUrl=url)
    with pytest.raises(ClientError, match="QueueDeletedRecently"):
        post.sqs.create_queue(QueueName="short")
    post.cloud.clock.move(60)
    post.sqs.create_queue(QueueName="short")


def test_t41_a_rule_with_targets_stays(post: Post):
    with pytest.raises(ClientError, match="ValidationException"):
        post.cloud.client("events").delete_rule(Name="spot")


def test_missing_queue_is_a_configuration_error(post: Post):
    gone = SqsNotices("us-east-1", post.url.replace("burst-events", "nobody"), lambda: post.sqs)
    with pytest.raises(CloudError) as caught:
        gone.receive(0)
    assert caught.value.fault is Fault.CONFIGURATION


def test_role_reads_only_the_queue_of_its_policy(post: Post):
    iam, trust = post.cloud.client("iam"), {"Service": "ec2.amazonaws.com"}
    statement = {"Effect": "Allow", "Principal": trust, "Action": "sts:AssumeRole"}
    iam.create_role(RoleName="reader", AssumeRolePolicyDocument=document(statement))
    allowed = {"Effect": "Allow", "Action": ["sqs:ReceiveMessage", "sqs:DeleteMessage"], "Resource": post.arn}
    iam.put_role_policy(RoleName="reader", PolicyName="r", PolicyDocument=document(allowed))
    key = post.cloud.api.ring.session("reader", "AROAREADER", "i-0000000000000000a", post.cloud.clock.now)
    sqs = post.cloud.client("sqs", key)
    reader = SqsNotices("us-east-1", post.url, lambda: sqs)
    post.model.recommend(post.instance, post.cloud.clock.now)
    post.deliver()
    notices = reader.receive(0)
    reader.forget([t.handle for t in notices])
    assert kinds(notices) == [(post.instance, NoticeKind.REBALANCE)]

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises((ClientError, CloudError), match="AccessDenied"):
            call()

    refused(lambda: SqsNotices("us-east-1", post.url + "-other", lambda: sqs).receive(0))
    refused(lambda: sqs.send_message(QueueUrl=post.url, MessageBody="{}"))
    refused(lambda: sqs.purge_queue(QueueUrl=post.url))


def test_event_delivery_without_rules_delivers_nothing(post: Post):
    post.cloud.client("events").disable_rule(Name="rebalance")
    try:
        post.model.recommend(post.instance, post.cloud.clock.now)
        deliver(post.model, post.cloud.api.moto, post.cloud.clock.now)
        assert post.notices().receive(0) == ()
    finally:
        post.cloud.client("events").enable_rule(Name="rebalance")


def test_failed_deletion_does_not_lose_notices(post: Post):
    """A role that may read and not delete raised at each look, with the spot notice beside it unheard."""
    post.sqs.send_message(QueueUrl=post.url, MessageBody="not ours")
    post.model.recommend(post.instance, post.cloud.clock.now)
    post.deliver()

    class Clumsy:
        def receive_message(self, **asked: Any) -> Any:
            return post.sqs.receive_message(**asked)

        def delete_message_batch(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DeleteMessageBatch")

    assert kinds(SqsNotices("us-east-1", post.url, Clumsy).receive(0)) == [
        (post.instance, NoticeKind.REBALANCE)
    ]

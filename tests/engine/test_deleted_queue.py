"""A queue that was deleted by hand: the remedy that `gpucluster status` names makes it again, and the bundle names the new one."""

import json

import pytest
from botocore.exceptions import ClientError
from support.engine_stack import Cluster

from gpucluster.cloud.port import CloudError
from gpucluster.cloud.queue import SqsNotices
from gpucluster.elastic.abilities import NO_QUEUE
from gpucluster.plan import codec
from gpucluster.plan.model import Bindings

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_deleted_queue_is_made_again_by_up_with_refresh(cluster: Cluster) -> None:
    cluster.up()
    sqs = cluster.client("sqs")
    (url,) = sqs.list_queues()["QueueUrls"]
    wanted = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]
    notices = SqsNotices("us-east-2", url, lambda: sqs)
    assert notices.receive(0) == ()
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(CloudError) as failed:
        notices.receive(0)
    assert any(word in str(failed.value) for word in NO_QUEUE)
    with pytest.raises(ClientError):
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
    cluster.refresh()
    made = codec.loads(Bindings, cluster.up().outputs["bindings"])
    again = sqs.get_queue_attributes(QueueUrl=made.queue, AttributeNames=["Policy"])["Attributes"]
    assert len(json.loads(again["Policy"])["Statement"]) == len(json.loads(wanted["Policy"])["Statement"])
    assert SqsNotices("us-east-2", made.queue, lambda: sqs).receive(0) == ()
    cluster.destroy()

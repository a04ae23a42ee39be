"""The NoticePort over SQS. It deletes unreadable messages and messages about something else."""

from collections.abc import Callable, Sequence
from typing import Any

from gpucluster.cloud import eventbridge
from gpucluster.cloud.aws import boto3_client, client_config, translated
from gpucluster.cloud.port import CloudError, QueueNotice

_PAGE = 10  # messages in one call
_WAIT_MAX_S = 20  # the limit of SQS


class SqsNotices:
    """One queue by its URL. `unreadable` counts deleted messages; `client` is for tests."""

    def __init__(self, region: str, url: str, client: Callable[[], Any] | None = None) -> None:
        self.unreadable = 0
        self._region, self._url = region, url
        self._make = client or self._boto3_client
        self._sqs: Any = None

    def receive(self, wait_s: float) -> tuple[QueueNotice, ...]:
        """See NoticePort. A message is hidden for 30 s and is delivered again if it was not deleted."""
        wait = max(0, min(_WAIT_MAX_S, int(wait_s)))
        with translated():
            answer = self._client().receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=_PAGE, WaitTimeSeconds=wait
            )
        notices, useless = list[QueueNotice](), list[str]()
        for message in answer.get("Messages", []):
            handle = message.get("ReceiptHandle", "")
            found = eventbridge.read(message.get("Body", ""), handle)
            self.unreadable += found.unreadable
            notices += found.notices
            useless += [] if found.notices else [handle]
        try:
            self.forget(useless)
        except CloudError:
            if not notices:  # received notices are returned even if the deletion of other messages fails
                raise
        return tuple(notices)

    def forget(self, handles: Sequence[str]) -> None:
        """See NoticePort. A message about several instances has one handle."""
        once = [h for h in dict.fromkeys(handles) if h]
        for start in range(0, len(once), _PAGE):
            entries = [{"Id": str(n), "ReceiptHandle": h} for n, h in enumerate(once[start : start + _PAGE])]
            with translated():
                self._client().delete_message_batch(QueueUrl=self._url, Entries=entries)

    def _client(self) -> Any:
        if self._sqs is None:
            self._sqs = self._make()
        return self._sqs

    def _boto3_client(self) -> Any:
        return boto3_client("sqs", self._region, client_config(attempts=2, read_timeout_s=_WAIT_MAX_S + 10))

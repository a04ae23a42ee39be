"""The NoticePort over SQS. A message that says nothing of an instance, or nothing that can be read, is deleted here."""

from collections.abc import Callable, Sequence
from typing import Any

from gpucluster.cloud import eventbridge
from gpucluster.cloud.aws import boto3_client, client_config, translated
from gpucluster.cloud.port import CloudError, Told

_PAGE = 10  # messages of one call, received or deleted
_WAIT_MAX_S = 20  # SQS's own


class SqsNotices:
    """One queue by its URL. `unreadable` counts what was dropped; `client` is for tests."""

    def __init__(self, region: str, url: str, client: Callable[[], Any] | None = None) -> None:
        self.unreadable = 0
        self._region, self._url = region, url
        self._make = client or self._boto3_client
        self._sqs: Any = None

    def receive(self, wait_s: float) -> tuple[Told, ...]:
        """As the port says; a message hides for 30 s, and comes again if it was not forgotten by then."""
        wait = max(0, min(_WAIT_MAX_S, int(wait_s)))
        with translated():
            answer = self._client().receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=_PAGE, WaitTimeSeconds=wait
            )
        told, useless = list[Told](), list[str]()
        for message in answer.get("Messages", []):
            handle = message.get("ReceiptHandle", "")
            found = eventbridge.read(message.get("Body", ""), handle)
            self.unreadable += found.unreadable
            told += found.told
            useless += [] if found.told else [handle]
        try:
            self.forget(useless)
        except CloudError:
            if not told:  # what was heard counts more than what could not be thrown away
                raise
        return tuple(told)

    def forget(self, handles: Sequence[str]) -> None:
        """As the port says; a message with several instances has one handle."""
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

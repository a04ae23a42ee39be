"""Ask the account for the answers of a plan's look-ups. All calls only read."""

from collections.abc import Iterable

from botocore.exceptions import BotoCoreError, ClientError

from gpucluster.engine.aws_account import AwsAccount
from gpucluster.engine.data_sources import SOURCES, LookupRefusedError, look_up, read
from gpucluster.engine.offline.answers import Answer, Recording
from gpucluster.engine.offline.model import Lookup
from gpucluster.errors import GpuclusterError


class LiveError(GpuclusterError):
    """A look-up in the account failed."""


def query_account(region: str, questions: Iterable[Lookup]) -> tuple[Recording, ...]:
    """Return the answer of each look-up with the credentials of the environment. LiveError names a failed look-up."""
    account = AwsAccount(region)
    return tuple(
        Recording(token=one.token, arguments=one.arguments, answer=_answer(account, one)) for one in questions
    )


def _answer(account: AwsAccount, question: Lookup) -> Answer:
    try:
        if question.token in SOURCES:
            return look_up(account, question.token, dict(question.arguments))
        return read(account, question.token, str(question.arguments["id"]))
    except LookupRefusedError as error:
        raise LiveError(str(error)) from error
    except (ClientError, BotoCoreError) as error:
        raise LiveError(
            f"{question.token}: the account in {account.region} did not answer: {error}",
            next_step="credentials come from the environment or ~/.aws, as every AWS tool takes them",
        ) from error

"""Ask the account itself what a program looks up: `gpucluster plan --resources --live`. Reads only."""

from collections.abc import Iterable

from botocore.exceptions import BotoCoreError, ClientError

from gpucluster.engine.offline.answers import Answer, Recording
from gpucluster.engine.offline.model import Lookup
from gpucluster.engine.provider.calls import Cloud
from gpucluster.engine.provider.crud import Crud
from gpucluster.engine.provider.invoke import SOURCES, RefusedError, invoke
from gpucluster.engine.provider.table import TYPES
from gpucluster.errors import GpuclusterError


class LiveError(GpuclusterError):
    """The account did not answer."""


def ask(region: str, questions: Iterable[Lookup]) -> tuple[Recording, ...]:
    """Each question's answer, by the credentials of the environment; LiveError says which had none."""
    cloud = Cloud(region)
    return tuple(
        Recording(token=one.token, arguments=one.arguments, answer=_asked(cloud, one)) for one in questions
    )


def _asked(cloud: Cloud, question: Lookup) -> Answer:
    try:
        if question.token in SOURCES:
            return invoke(cloud, question.token, dict(question.arguments))
        return _read(cloud, question)
    except RefusedError as error:
        raise LiveError(str(error)) from error
    except (ClientError, BotoCoreError) as error:
        raise LiveError(
            f"{question.token}: the account in {cloud.region} did not answer: {error}",
            next_step="credentials come from the environment or ~/.aws, as every AWS tool takes them",
        ) from error


def _read(cloud: Cloud, question: Lookup) -> Answer:
    kind = TYPES.get(question.token)
    if kind is None:
        raise RefusedError(f"nobody here can ask for {question.token}: record its answer by hand")
    identifier = str(question.arguments["id"])
    found = Crud(cloud, {}).read(kind, identifier, {}, {})
    if found is None:
        raise RefusedError(f"there is no {identifier} in {cloud.region} for these credentials")
    return found.outputs

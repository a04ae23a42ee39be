"""Calls that several resource types use: update EC2 tags, and wait for a state."""

from collections.abc import Callable

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import is_absent
from gpucluster.sandbox.provider.cloud import FailedError
from gpucluster.sandbox.provider.schema import Call


def retag_ec2(call: Call) -> None:
    """Set the EC2 tags of `call.id` to those of its inputs."""
    gone = call.lost_tags()
    if gone:
        call.cloud.ec2.delete_tags(Resources=[call.id], Tags=[{"Key": k} for k in gone])
    if call.tags:
        call.cloud.ec2.create_tags(Resources=[call.id], Tags=call.tags)


def await_gone(call: Call) -> None:
    """Wait until the row's own `read` returns nothing."""

    def gone() -> bool:
        try:
            return call.kind.read(call.cloud, call.id, call.inputs) is None
        except ClientError as error:
            if is_absent(error):
                return True
            raise

    call.cloud.wait(f"{call.id} gone", call.seconds, gone)


def await_state(call: Call, state: Callable[[], tuple[str, str]], good: str, bad: frozenset[str]) -> None:
    """Wait until the first item of `state()` is `good`. A bad state raises an error with the second item, the cloud's reason."""

    def there() -> bool:
        word, why = state()
        if word in bad:
            raise FailedError(f"{call.id} is {word}: {why or 'no reason given'}")
        return word == good

    call.cloud.wait(f"{call.id} {good}", call.seconds, there)

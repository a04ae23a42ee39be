"""Whose credentials are used: the AWS account of the caller. The call needs no right."""

from collections.abc import Callable
from typing import Any

from gpucluster.cloud.aws import boto3_client, client_config, translated


def caller_account(region: str, client: Callable[[], Any] | None = None) -> str:
    """Return the id of the account. It may raise CloudError. `client` makes one of STS; the default is boto3's."""
    with translated():
        sts = (
            client() if client else boto3_client("sts", region, client_config(attempts=3, read_timeout_s=20))
        )
        return str(sts.get_caller_identity()["Account"])

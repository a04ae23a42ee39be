"""The AWS APIs of the sandbox: a front end before moto, and a folder for each service that the sandbox answers itself."""

from typing import Final

ASKED: Final = (
    "/gpucluster/rights"  # path of the question whether the caller has rights; no part of any AWS API
)

"""The class of each error code by the caller's next step: one table, with a reason for each set.

Source: docs/facts/aws.md, error codes by next step. Throttling is never treated as lack of capacity.
Some codes need their text; `BY_TEXT` holds them and is read first.
"""

from collections.abc import Mapping

from gpucluster.cloud.port import CloudError, Fault

ECHO = "UnfulfillableCapacity"  # of a fleet: also the code of a machine type that was not tried (T13)

# The zone, machine or market has no capacity now: try the next candidate and remember the refusal for a while.
NO_CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",  # Reserved Instances, not capacity reservations
        "InsufficientReservedInstancesCapacity",  # another spelling in some answers
        "InsufficientAddressCapacity",
        "InsufficientFreeAddressesInSubnet",
        ECHO,
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "InvalidCapacityReservationState.PendingActivation",  # the block has not begun; other sources may work
        "InvalidCapacityReservationState",  # it is over or unpaid (the end of the code is not verified)
    }
)

# The zone does not offer the machine, or not in this form. Waiting does not help.
UNSUPPORTED = frozenset({"Unsupported", "InvalidFleetConfiguration", "UnsupportedOperation"})

# The call had no effect. The same call succeeds after a pause.
THROTTLED = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "BandwidthLimitExceeded",
        "SlowDown",  # S3
        "OverLimit",  # SQS: too many messages are in flight
        "ExpiredToken",  # the role session expired: the SDK fetches the next one
        "RequestExpired",
        "InvalidSecurity.RequestHasExpired",
        "OperationAborted",  # S3: a conflicting operation is under way
        # a deletion that waits 15 to 20 minutes for dependent resources
        "DependencyViolation",
        "InvalidPlacementGroup.InUse",
        "InvalidGroup.InUse",
        "FileSystemInUse",
        "DeleteConflict",
        "InvalidIPAddress.InUse",
        # the name of a deleted resource is still in use
        "QueueDeletedRecently",
        "InvalidRequestException",
    }
)

# A person must raise a limit; another zone does not help.
QUOTA = frozenset(
    {
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "InstanceLimitExceeded",
        "RequestResourceCountExceeded",
        "TagLimitExceeded",
        "PendingVerification",
    }
)

# A person must change the configuration or the account.
CONFIGURATION = frozenset(
    {
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "MissingAuthenticationToken",
        "SsmAccessDenied",
        "OptInRequired",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidAMIID.Malformed",
        "InvalidKeyPair.NotFound",
        "InvalidParameterValue",
        "InvalidParameterCombination",
        "InvalidParameter",
        "MissingParameter",
        "InvalidUserData.Malformed",
        "InvalidSubnetID.NotFound",  # templates, groups and subnets of an old bundle; waiting does not help
        "InvalidGroup.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidCapacityReservationId.NotFound",
        "InvalidPlacementGroup.Unknown",  # of an old bundle
        "OperationNotPermitted",  # termination protection
        "IncorrectInstanceState",
        "InvalidNetworkSettings",
        "NoSuchBucket",
    }
)

# The token has other parameters, or belongs to a dead instance.
TOKEN = frozenset({"IdempotentParameterMismatch", "IdempotentInstanceTerminated"})

# The named resource does not exist.
GONE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "NoSuchKey"})

# The service failed: the outcome is unknown.
LOST = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "ServerInternal",
        "ServiceUnavailable",
        "Unavailable",
        "RequestTimeout",
        "RequestTimeoutException",
    }
)

TABLE: Mapping[str, Fault] = {
    code: fault
    for fault, codes in (
        (Fault.NO_CAPACITY, NO_CAPACITY),
        (Fault.UNSUPPORTED, UNSUPPORTED),
        (Fault.THROTTLED, THROTTLED),
        (Fault.QUOTA, QUOTA),
        (Fault.CONFIGURATION, CONFIGURATION),
        (Fault.TOKEN, TOKEN),
        (Fault.GONE, GONE),
        (Fault.LOST, LOST),
    )
    for code in sorted(codes)
}

# (code, part of the text in lower case, class)
BY_TEXT: tuple[tuple[str, str, Fault], ...] = (
    # a new instance profile is unknown for minutes; the identical request succeeds later (T36)
    ("InvalidParameterValue", "iam instance profile", Fault.THROTTLED),
    # the Region does not have this type
    ("InvalidParameterValue", "for instancetype", Fault.UNSUPPORTED),
    # this is how a fleet reports a full targeted reservation
    ("UnfulfillableCapacity", "reservationcapacityexceeded", Fault.NO_CAPACITY),
    # this is how a fleet reports a missing permission
    ("InvalidFleetConfiguration", "not authorized", Fault.CONFIGURATION),
)


def classify(code: str, message: str = "", *, status: int = 400) -> Fault:
    """Return the class; an unknown code stops the source (4xx) or counts as no answer (5xx)."""
    text = message.lower()
    for ambiguous, part, fault in BY_TEXT:
        if code == ambiguous and part in text:
            return fault
    known = TABLE.get(code)
    if known is not None:
        return known
    return Fault.LOST if status >= 500 else Fault.CONFIGURATION


def cloud_error(code: str, message: str, *, status: int = 400) -> CloudError:
    """Return the CloudError for a code and text of the cloud."""
    return CloudError(classify(code, message, status=status), code, message)

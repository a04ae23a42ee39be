"""What a cloud's error code means to the caller: one table, sets with the reason for each.

From `aws-traps.md` §1i and what peers had to learn (throttling is never lack of capacity).
Some codes say nothing without their text: those rows stand in `BY_TEXT` and are asked first.
"""

from collections.abc import Mapping

from gpucluster.cloud.port import CloudError, Fault

ECHO = "UnfulfillableCapacity"  # of a fleet: also what is said of a machine that was not tried (T13)

# The zone, machine or market has no room now: go on, and remember for a while.
NO_CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",  # Reserved Instances, not reservations of capacity
        "InsufficientReservedInstancesCapacity",  # the same, as some replies spell it
        "InsufficientAddressCapacity",
        "InsufficientFreeAddressesInSubnet",
        ECHO,
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "InvalidCapacityReservationState.PendingActivation",  # the block has not begun: others may do
        "InvalidCapacityReservationState",  # it is over, or not paid (this end of the code is not verified)
    }
)

# Not sold there, or not in this shape: nothing but a change of the world makes it pass.
UNSUPPORTED = frozenset({"Unsupported", "InvalidFleetConfiguration", "UnsupportedOperation"})

# The call was refused before it did anything, and passes unchanged after a pause.
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
        "ExpiredToken",  # a role session: the SDK fetches the next one
        "RequestExpired",
        "InvalidSecurity.RequestHasExpired",
        "OperationAborted",  # S3: a conflicting operation is under way
        # a deletion that waits for what hangs on it, 15 to 20 min
        "DependencyViolation",
        "InvalidPlacementGroup.InUse",
        "InvalidGroup.InUse",
        "FileSystemInUse",
        "DeleteConflict",
        "InvalidIPAddress.InUse",
        # a name that is still held by what was deleted
        "QueueDeletedRecently",
        "InvalidRequestException",
    }
)

# A person must raise a limit; no other zone helps.
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

# A person must change something of ours or of the account.
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
        "InvalidSubnetID.NotFound",  # templates, groups and subnets of a bundle are old: not a lag
        "InvalidGroup.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidCapacityReservationId.NotFound",
        "InvalidPlacementGroup.Unknown",  # of a bundle that is old
        "OperationNotPermitted",  # termination protection
        "IncorrectInstanceState",
        "InvalidNetworkSettings",
        "NoSuchBucket",
    }
)

# The token is bound to other parameters, or to what is dead.
TOKEN = frozenset({"IdempotentParameterMismatch", "IdempotentInstanceTerminated"})

# What was named is not there (any more, or not yet).
GONE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "NoSuchKey"})

# The service broke off: nobody knows whether it was done.
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

# (code, a part of the text in lower case, what it means)
BY_TEXT: tuple[tuple[str, str, Fault], ...] = (
    # a fresh instance profile is unknown for minutes: the identical request passes later (T36)
    ("InvalidParameterValue", "iam instance profile", Fault.THROTTLED),
    # a type that the Region does not know
    ("InvalidParameterValue", "for instancetype", Fault.UNSUPPORTED),
    # fleets say so of a full targeted reservation
    ("UnfulfillableCapacity", "reservationcapacityexceeded", Fault.NO_CAPACITY),
    # the fleet's wording of a permission that lacks
    ("InvalidFleetConfiguration", "not authorized", Fault.CONFIGURATION),
)


def classify(code: str, message: str = "", *, status: int = 400) -> Fault:
    """Return the caller's next move; an unknown code stops (4xx) or counts as unanswered (5xx)."""
    text = message.lower()
    for ambiguous, part, fault in BY_TEXT:
        if code == ambiguous and part in text:
            return fault
    known = TABLE.get(code)
    if known is not None:
        return known
    return Fault.LOST if status >= 500 else Fault.CONFIGURATION


def cloud_error(code: str, message: str, *, status: int = 400) -> CloudError:
    """Return the error that a port raises for a cloud's own code and text."""
    return CloudError(classify(code, message, status=status), code, message)

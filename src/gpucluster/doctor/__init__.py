"""Account checks: what a cluster requires of an AWS account before `pulumi up`. They read and change nothing."""

"""The EC2 calls that the sandbox answers itself: all that touch instances, and deletions that they forbid."""

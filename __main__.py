"""What `pulumi up` runs."""

from gpucluster.aws.program import main

main()

#!/bin/sh
# stacks/research.yaml runs this file as root on each new node of the pool h200, before the node takes jobs.
# A change of the file needs the new `sha256sum` in the spec, and the new file in S3.
set -eu
install -d -m 1777 /scratch/cache   # data sets that the jobs of a node share, on the node's own disks
echo "$GPUCLUSTER_CLUSTER $GPUCLUSTER_POOL $GPUCLUSTER_NODE" > /etc/site-boot

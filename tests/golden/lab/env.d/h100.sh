# lab: made by gpucluster. The environment of jobs in the pool h100, fabric infiniband. Job scripts source /etc/gpucluster/env.sh.
# NCCL's bootstrap must use a network that the other nodes reach. The list excludes bridges and loopback, so it does not depend on how a machine type names its interfaces. Source: NCCL user guide, Environment Variables, NCCL_SOCKET_IFNAME: ^ excludes every interface with one of the prefixes (read 2026-11-22)
export NCCL_SOCKET_IFNAME='^docker,lo,veth'
# Never NCCL_IB_DISABLE: `1` sends all traffic of jobs over sockets. Source: NCCL user guide, Environment Variables, NCCL_IB_DISABLE (read 2026-11-22)
# Never RDMAV_FORK_SAFE: a variable of rdma-core that breaks things on newer kernels; the plugin asks libfabric itself. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)

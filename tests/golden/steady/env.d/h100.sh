# steady: made by gpucluster. The environment of jobs in the pool h100, fabric efa. Job scripts source /etc/gpucluster/env.sh.
# NCCL's bootstrap must use a network that the other nodes reach. The list excludes bridges and loopback, so it does not depend on how a machine type names its interfaces. Source: NCCL user guide, Environment Variables, NCCL_SOCKET_IFNAME: ^ excludes every interface with one of the prefixes (read 2026-11-22)
export NCCL_SOCKET_IFNAME='^docker,lo,veth'
# Not set: if os.fork() of a data loader fails with `OSError: Cannot allocate memory`. It costs a little speed, so it is not set for all jobs. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)
# export FI_EFA_USE_HUGE_PAGE=0
# Never FI_EFA_ENABLE_SHM_TRANSFER: not needed: libfabric turns it off for this plugin. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)
# Never FI_EFA_FORK_SAFE: not needed: the plugin sets it. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)
# Never FI_EFA_SET_CUDA_SYNC_MEMOPS: only for an EFA installer before 1.29.1; the image has a newer one. Source: awsome-distributed-training, efa-cheatsheet.md at 0610db0; the version in the image: pin `efa` in image.json
# Never FI_EFA_USE_DEVICE_RDMA: only for aws-ofi-nccl 1.6 and older; the image has a newer one. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6; the version in the image: pin `efa` in image.json
# Never FI_PROVIDER: only for aws-ofi-nccl 1.5 and older; the image has a newer one. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)
# Never NCCL_BUFFSIZE: the default is right; a benchmark may set it for itself. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)
# Never NCCL_IB_HCA: variables of NCCL's own InfiniBand transport; with EFA the plugin is the transport. Source: aws/aws-ofi-nccl is a network plugin beside NCCL's IB transport: NCCL user guide, NCCL_NET
# Never NCCL_MIN_NCHANNELS: more channels make smaller messages, and EFA waits for data. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6, as NCCL_MIN_CHANNELS (read 2026-11-22)
# Never NCCL_NSOCKS_PERTHREAD: it tunes sockets, which do not carry the data here. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)
# Never NCCL_PROTO: `simple` is only for aws-ofi-nccl 1.5 and older, and costs speed later. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)
# Never NCCL_SOCKET_NTHREADS: it tunes sockets, which do not carry the data here. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)
# Never RDMAV_FORK_SAFE: a variable of rdma-core that breaks things on newer kernels; the plugin asks libfabric itself. Source: aws/aws-ofi-nccl, doc/efa-env-var.md at 518f4c6 (read 2026-11-22)

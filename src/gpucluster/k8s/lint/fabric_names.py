"""Variables of NCCL and libfabric: names that no library reads, and an interface that no other node reaches."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import EFA, is_gang
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import asked, parts_of
from gpucluster.k8s.lint.tree import at, entries, text
from gpucluster.text import quoted

# NCCL user guide, Environment Variables; libfabric, fi_efa(7), fabric(7)
_KNOWN = frozenset(
    {
        "NCCL_ALGO", "NCCL_ALLOC_P2P_NET_LL_BUFFERS", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_BUFFSIZE", "NCCL_CGA_CLUSTER_SIZE", "NCCL_CHECKS_DISABLE",
        "NCCL_CHECK_POINTERS", "NCCL_COLLNET_ENABLE", "NCCL_COLLNET_NODE_THRESHOLD", "NCCL_COMM_BLOCKING", "NCCL_COMM_ID",
        "NCCL_CONF_FILE", "NCCL_CROSS_NIC", "NCCL_CTA_POLICY", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_DEBUG", "NCCL_DEBUG_FILE",
        "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_TIMESTAMP_FORMAT", "NCCL_DEBUG_TIMESTAMP_LEVELS", "NCCL_DMABUF_ENABLE", "NCCL_GDRCOPY_ENABLE",
        "NCCL_GRAPH_DUMP_FILE", "NCCL_GRAPH_FILE", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_GRAPH_REGISTER", "NCCL_HOSTID", "NCCL_IB_ADAPTIVE_ROUTING",
        "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_AR_THRESHOLD", "NCCL_IB_CUDA_SUPPORT", "NCCL_IB_DATA_DIRECT", "NCCL_IB_DISABLE",
        "NCCL_IB_ECE_ENABLE", "NCCL_IB_FIFO_TC", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_MERGE_NICS", "NCCL_IB_MERGE_VFS",
        "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IB_PKEY", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_RETRY_CNT", "NCCL_IB_RETURN_ASYNC_EVENTS",
        "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_SL", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_TC", "NCCL_IB_TIMEOUT", "NCCL_IB_USE_INLINE", "NCCL_IGNORE_CPU_AFFINITY",
        "NCCL_IGNORE_DISABLED_P2P", "NCCL_LAUNCH_MODE", "NCCL_LOCAL_REGISTER", "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_P2P_NCHANNELS",
        "NCCL_MIN_CHANNELS", "NCCL_MAX_CHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MIN_P2P_NCHANNELS", "NCCL_MNNVL_ENABLE", "NCCL_MNNVL_UUID", "NCCL_NCHANNELS_PER_NET_PEER", "NCCL_NET",
        "NCCL_NETDEVS_POLICY", "NCCL_NET_DISABLE_INTRA", "NCCL_NET_FORCE_MERGE", "NCCL_NET_GDR_C2C", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ",
        "NCCL_NET_MERGE_LEVEL", "NCCL_NET_OVERHEAD", "NCCL_NET_PLUGIN", "NCCL_NET_SHARED_BUFFERS", "NCCL_NET_SHARED_COMMS", "NCCL_NSOCKS_PERTHREAD",
        "NCCL_NTHREADS", "NCCL_NVB_DISABLE", "NCCL_NVLSTREE_MAX_CHUNKSIZE", "NCCL_NVLS_CHUNKSIZE", "NCCL_NVLS_ENABLE", "NCCL_NVTX_DISABLE", "NCCL_OOB_NET_ENABLE",
        "NCCL_OOB_NET_IFNAME", "NCCL_P2P_DIRECT_DISABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE",
        "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_PXN_LEVEL", "NCCL_P2P_USE_CUDA_MEMCPY", "NCCL_PROFILER_PLUGIN", "NCCL_PROGRESS_APPENDOP_FREQ",
        "NCCL_PROTO", "NCCL_PXN_C2C", "NCCL_PXN_DISABLE", "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE", "NCCL_RAS_TIMEOUT_FACTOR", "NCCL_RUNTIME_CONNECT",
        "NCCL_SET_CPU_AFFINITY", "NCCL_SET_STACK_SIZE", "NCCL_SET_THREAD_NAME", "NCCL_SHM_DISABLE", "NCCL_SHM_LOCALITY", "NCCL_SHM_USE_CUDA_MEMCPY", "NCCL_SHM_MEMCPY_MODE",
        "NCCL_SINGLE_RING_THRESHOLD", "NCCL_SOCKET_FAMILY", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS", "NCCL_SOCKET_RETRY_CNT", "NCCL_SOCKET_RETRY_SLEEP_MSEC",
        "NCCL_TIMEOUT", "NCCL_TOPO_DUMP_FILE", "NCCL_TOPO_FILE", "NCCL_TREE_THRESHOLD", "NCCL_TUNER_CONFIG_PATH", "NCCL_TUNER_PLUGIN", "NCCL_WORK_ARGS_BYTES", "NCCL_WORK_FIFO_BYTES", "NCCL_WORK_FIFO_DEPTH",
        "FI_EFA_ENABLE_SHM_TRANSFER", "FI_EFA_FORK_SAFE", "FI_EFA_IFACE", "FI_EFA_INTER_MAX_GDRCOPY_MESSAGE_SIZE",
        "FI_EFA_INTER_MAX_MEDIUM_MESSAGE_SIZE", "FI_EFA_INTER_MIN_READ_MESSAGE_SIZE", "FI_EFA_INTER_MIN_READ_WRITE_SIZE", "FI_EFA_MR_CACHE_ENABLE",
        "FI_EFA_MR_MAX_CACHED_COUNT", "FI_EFA_MR_MAX_CACHED_SIZE", "FI_EFA_RX_SIZE", "FI_EFA_SET_CUDA_SYNC_MEMOPS", "FI_EFA_SHM_AV_SIZE", "FI_EFA_TX_SIZE",
        "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_USE_HUGE_PAGE", "FI_EFA_USE_UNSOLICITED_WRITE_RECV", "FI_HMEM", "FI_HMEM_CUDA_USE_GDRCOPY", "FI_LOG_LEVEL", "FI_LOG_PROV", "FI_LOG_SUBSYS", "FI_MR_CACHE_MAX_COUNT",
        "FI_MR_CACHE_MAX_SIZE", "FI_MR_CACHE_MONITOR", "FI_PROVIDER", "FI_PROVIDER_PATH", "FI_TCP_IFACE", "FI_UNIVERSE_SIZE",
    }
)  # fmt: skip
_PREFIXES = ("NCCL_", "FI_EFA_", "FI_PROVIDER")
_NEAR = 0.9
# NCCL_DEBUG in any case; FI_PROVIDER is a list of names of fi_info(1), with `^` in front of those to leave out
_LEVELS = frozenset({"abort", "info", "none", "trace", "version", "warn"})
_PROVIDERS = frozenset(
    {"cxi", "efa", "gni", "hook_debug", "lnx", "lpp", "mlx", "net", "ofi_rxd", "ofi_rxm", "opx", "psm", "psm2", "psm3", "rxd", "rxm", "shm",
     "sm2", "sockets", "tcp", "ucx", "udp", "usnic", "verbs"}
)  # fmt: skip
_INTERFACES = frozenset({"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"})


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in parts_of(thing):
            gang = is_gang(pods)
            for path, container in pods.containers():
                for inner, variable in entries(container, "env"):
                    name, where = text(at(variable, "name")), (*path, *inner)
                    if meant := _meant(name):
                        words = f"no library reads {quoted(name)}: {meant} is meant"
                        yield thing.warned("fabric-variable", words, (*where, "name"))
                    if gang and name in _INTERFACES and at(variable, "value") in ("lo", "=lo"):
                        words = f"{name}=lo: the other nodes are not reached, and the gang waits until its time-out"
                        yield thing.warned("fabric-variable", words, (*where, "value"))
                    if words := _value(name, text(at(variable, "value")), efa=EFA in asked(container)):
                        yield thing.warned("fabric-variable", words, (*where, "value"))


def _value(name: str, value: str, *, efa: bool) -> str:
    """Return what is wrong with a value; "" for one that is filled later, or that is right."""
    if not value or "$" in value:
        return ""
    if name == "NCCL_DEBUG" and value.lower() not in _LEVELS:
        return f"NCCL_DEBUG is none of VERSION, WARN, INFO, TRACE: {quoted(value)} prints nothing"
    if name == "FI_PROVIDER":
        parts = [part for part in re.split(r"[,;]", value.removeprefix("^").lower()) if part]
        unknown = [part for part in parts if part not in _PROVIDERS]
        return f"libfabric has no provider {quoted(unknown[0])}: efa is that of AWS" if unknown else ""
    if name in _INTERFACES and efa and value.lstrip("=").startswith("ib"):
        return f"machines with EFA have no interface {quoted(value)}: theirs begin with en or eth, and `^lo,docker` leaves out the others"
    return ""


def _meant(name: str) -> str:
    if not name.startswith(_PREFIXES) or name in _KNOWN:
        return ""
    return "".join(get_close_matches(name, sorted(_KNOWN), n=1, cutoff=_NEAR))

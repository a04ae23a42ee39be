"""Why a pod or a workload does not run: a read of the cluster, and the causes in the words of the controllers that know them."""

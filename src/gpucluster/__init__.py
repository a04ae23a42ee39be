"""One typed spec becomes a GPU cluster: on AWS, on existing hosts, or rehearsed on one machine."""

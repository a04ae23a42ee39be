"""The commands of the `gpucluster` program. They combine the other rooms."""

"""ClusterPlan -> the files of Slurm."""

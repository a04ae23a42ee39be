"""ClusterPlan -> Pulumi resources; decides nothing."""

"""An EKS cluster: one module for each component. `declare.py` has their order. A cluster that exists needs none of them."""

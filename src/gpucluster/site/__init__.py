"""Hosts that exist, as Ansible sees them: an inventory made from the plan, and the folder of files that it brings there."""

"""Existing hosts for Ansible: an inventory made from the plan, and the folder of files that Ansible copies."""

"""Machine images on AWS: a builder is launched, filled by the playbook, imaged and ended."""

"""The cloud on one Linux machine: capsule, EC2 face, metadata service, images, machines."""

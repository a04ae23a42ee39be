"""The machines of a sandbox: systemd-nspawn containers with their volumes and mounts."""

"""Local disks, file systems and exports of a machine."""

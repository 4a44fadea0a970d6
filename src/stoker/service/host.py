"""Identity of the host that this process runs on."""

from pathlib import Path


def host_id() -> str:
    """Return an id of the running kernel, the same in all containers of a host; "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""

"""A program that starts before anybody asks for it, and waits for its orders where the Python runtime would: its start is what takes long."""

from . import user_process

_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
#: Tells the program that its orders come on the descriptor of the orders, as JSON behind its length.
_OPTION = "--wait-for-orders=%d"


class Resident:
    """What every worker of a zygote starts: for the user that is asked for most, who has no rights then already."""

    def __init__(self, config, layers, identity):
        self.argv = config["argv"] + [_OPTION % user_process.ORDERS]
        self.environment = _ENVIRONMENT
        self.identity = user_process.plain_identity(identity, layers)
        self.limits = {"memoryMb": 0, "maxProcesses": 0, "maxOpenFiles": config["maxOpenFiles"]}


def find(config, layers, identity):
    """None where there is none, or where what it may do depends on the request: those limits cannot be set from outside."""
    if config is None or layers.has("user") or not all(map(layers.has, ("mount", "pid", "cgroup.memory"))):
        return None
    return Resident(config, layers, identity)

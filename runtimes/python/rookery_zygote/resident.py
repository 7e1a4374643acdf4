"""
A program that starts ahead of its orders and waits for them in place of the Python runtime, because its start
takes long.
"""

from . import user_process

_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
#: Option that makes the program read its orders from this descriptor, as JSON after its length.
_OPTION = "--wait-for-orders=%d"


class Resident:
    """The program that every worker of a zygote starts, as the most frequent user, without any rights."""

    def __init__(self, config, layers, identity):
        self.argv = config["argv"] + [_OPTION % user_process.ORDERS]
        self.environment = _ENVIRONMENT
        self.identity = user_process.plain_identity(identity, layers)
        self.limits = {"memoryMb": 0, "maxProcesses": 0, "maxOpenFiles": config["maxOpenFiles"]}


def find(config, layers, identity):
    """
    Returns the Resident, or None.

    Its limits cannot be set from outside after the start. So there is none where its permissions depend on
    the request.
    """
    if config is None or layers.has("user") or not all(map(layers.has, ("mount", "pid", "cgroup.memory"))):
        return None
    return Resident(config, layers, identity)

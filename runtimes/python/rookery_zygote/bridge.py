"""Speaks HTTP to the program of an image and the runtime protocol to the server: one process of the host per container.

Its orders are one JSON object on standard input, which come when the container runs; a line on descriptor 3 says that it listens. It lives
as long as the container, also after the end of the server.
"""

import json
import os
import sys

from rookery_runtime import http_bridge, http_program, unix_path

from . import inside, process
from .container import Container
from .failure import Refusal

_BACKLOG = 128
_READY = 3
_EXIT_ENDED = 70
_NAME = "the program of the image"


def main():
    """Never returns."""
    title = process.Title()
    orders = json.loads(sys.stdin.readline() or "null")
    if orders is None:
        # The container was not started.
        os._exit(0)
    try:
        title.set("rookery: bridge %s" % orders["instanceId"])
        os.umask(0o077)
        listener = unix_path.listen(orders["socket"], _BACKLOG)
        program = _Program(Container(orders["pid"]))
        if orders["startSeconds"] is not None:
            os.environ["HTTP_START_SECONDS"] = orders["startSeconds"]
        if orders["address"] is None:
            inside.enter(orders, ("net", "mnt"))
        else:
            http_program.ADDRESS = (orders["address"], http_program.ADDRESS[1])
            program.name += " (which must listen on 0.0.0.0: this server may not enter the network of a container)"
    except Refusal as refusal:
        _tell({"ok": False, "code": refusal.code, "message": refusal.message})
        os._exit(_EXIT_ENDED)
    except BaseException as error:
        _tell({"ok": False, "code": "internal", "message": "%s: %s" % (type(error).__name__, error)})
        os._exit(_EXIT_ENDED)
    _tell({"ok": True})
    # The server may end before the container does.
    os.dup2(1, 0)
    os.close(_READY)
    http_bridge.serve_when_ready(listener, orders["secret"], lambda: program)


def _tell(message):
    os.write(_READY, json.dumps(message).encode() + b"\n")


class _Program(http_program.HttpProgram):
    """Started by the daemon, with the container as its process."""

    def __init__(self, container):
        self.name = _NAME
        self._process = container
        self._is_ending = False

    @property
    def _name(self):
        return self.name

    def wait_until_ready(self):
        try:
            http_program.HttpProgram.wait_until_ready(self)
        except http_program.NotServing:
            self._exit_when_ended()
            # Each connection gets the reason, until the end of the container.
            self.watch()
            raise

    def _end_with_it(self):
        self._process.wait()
        if not self._is_ending:
            self._exit_when_ended()

    def _exit_when_ended(self):
        """How it ended the daemon knows, and tells the server."""
        if self.has_ended():
            os._exit(_EXIT_ENDED)

    def _signal(self, number):
        try:
            os.kill(self._process.pid, number)
        except OSError:  # it has ended, or belongs to another user: then the server ends it
            pass


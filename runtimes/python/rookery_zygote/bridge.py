"""Translates between the HTTP of an image's program and the runtime protocol. One process of the host for
each container.

Reads its orders from standard input, as one JSON object, which the server sends when the container runs.
Writes a line to descriptor 3 when it listens. Exits with the container, even if the server ends earlier.
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
    """Runs the bridge. Never returns."""
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
    # Replaces the pipes from the server, which may end before the container does.
    os.dup2(1, 0)
    os.close(_READY)
    http_bridge.serve_when_ready(listener, orders["secret"], lambda: program)


def _tell(message):
    os.write(_READY, json.dumps(message).encode() + b"\n")


class _Program(http_program.HttpProgram):
    """The program that the Docker daemon has started. Its process is the first one of the container."""

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
            # Until the container ends, each connection gets the reason.
            self.watch()
            raise

    def _end_with_it(self):
        self._process.wait()
        if not self._is_ending:
            self._exit_when_ended()

    def _exit_when_ended(self):
        """Ends this process if the program has ended. The daemon reports the exit code to the server."""
        if self.has_ended():
            os._exit(_EXIT_ENDED)

    def _signal(self, number):
        try:
            os.kill(self._process.pid, number)
        except OSError:  # it has ended, or belongs to another user: then the server ends it
            pass


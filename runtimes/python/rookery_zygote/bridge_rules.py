"""Keeps the firewall rules for the bridges of an installation's docker networks (`network_rules`).

Runs as long as its standard input is open. One line of JSON there lists the bridges. When this process ends,
the rules stay as long as one of the bridges exists.
"""

import json
import os
import signal
import sys

from . import network_rules

_READY = 3


def main():
    bridges = json.loads(sys.stdin.readline())["bridges"]
    # The server ends this process. A Ctrl-C in the server's terminal must not.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rules = network_rules.Rules(None, bridges)
    try:
        rules.hold()
        said = {"ok": True}
    except (OSError, network_rules.RulesFailure) as failure:
        said = {"ok": False, "message": str(failure)}
    os.write(_READY, json.dumps(said).encode())
    os.close(_READY)
    sys.stdin.read()
    rules.release()

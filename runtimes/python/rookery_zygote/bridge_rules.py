"""Holds the firewall rules for the bridges of one installation's docker networks (`network_rules`), for as long as its standard input is open.

One line of JSON there says which bridges. The rules stay when it ends as long as there is one of those, and go with the last one.
"""

import json
import os
import signal
import sys

from . import network_rules

_READY = 3


def main():
    bridges = json.loads(sys.stdin.readline())["bridges"]
    # The server ends it; a Ctrl-C in the server's terminal does not.
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

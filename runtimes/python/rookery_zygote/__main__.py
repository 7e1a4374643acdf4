"""
Starts a zygote: `python -I <this file>`.

Reads the configuration from standard input, as one JSON object. Writes a line to descriptor 3 when it serves.
"""

import gc
import json
import os
import sys


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Removes the directory of this file. `-I` does not add it, an ordinary start does.
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]
    sys.path.insert(0, here)
    gc.disable()
    config = json.loads(sys.stdin.read())
    os.umask(0o077)

    from rookery_zygote import forking, zygote, user_process

    try:
        one = zygote.Zygote(config)
        if not one.lock():
            _tell({"state": "another one serves"})
            return
        one.prepare()
        _tell({"state": "ready"})
        one.run()
        return
    except forking.BecomeServer as child:
        plan, forks, connection = child.plan, child.forks, child.connection
    del one, config
    forking.live(plan, forks, connection)
    # Runs in each user's process, with nothing else on the stack.
    user_process.wait_for_orders(plan.layers, plan.title, plan.resident)


def _tell(message):
    with os.fdopen(3, "w") as ready:
        ready.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()

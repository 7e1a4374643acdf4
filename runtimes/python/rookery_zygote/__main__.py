"""`python -I <this file>`: one JSON object on standard input is the configuration; a line on descriptor 3 says that it serves."""

import gc
import json
import os
import sys


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Not the directory of this file: `-I` does not add it, an ordinary start does.
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]
    sys.path.insert(0, here)
    gc.disable()
    config = json.loads(sys.stdin.read())
    os.umask(0o077)

    from rookery_zygote import zygote, worker, user_process

    try:
        one = zygote.Zygote(config)
        if not one.lock():
            _tell({"state": "another one serves"})
            return
        one.prepare()
        _tell({"state": "ready"})
        one.run()
        return
    except zygote.BecomeWorker as child:
        plan, control, name, asked = child.plan, child.control, child.name, child.asked
        del one
    try:
        worker.live(plan, control, name, asked)
    except user_process.BecomeUser as child:
        arguments = (child.layers, child.title, child.descriptors, child.resident)
    del plan, control, name
    user_process.wait_for_orders(*arguments)


def _tell(message):
    with os.fdopen(3, "w") as ready:
        ready.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()

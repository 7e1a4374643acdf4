"""`python -I <this file> <socket> <program>`: a sandbox as a program of the operator's supervisord; see `shim.py`."""

import gc
import os
import sys


def main():
    directory = os.path.dirname(os.path.abspath(__file__))
    # Not the directory of this file: `-I` does not add it, an ordinary start does.
    sys.path[:] = [entry for entry in sys.path if entry != directory]
    sys.path.insert(0, os.path.dirname(directory))
    gc.disable()
    os.umask(0o077)
    os.chdir("/")

    from rookery_zygote import shim, user_process

    try:
        shim.serve(sys.argv[1], sys.argv[2])
    except shim.BecomeSandbox as child:
        arguments = (child.plan, child.ready, child.control, child.connection)
    try:
        shim.live(*arguments)
    except user_process.BecomeUser as child:
        arguments = (child.layers, child.title, child.descriptors, child.resident)
    user_process.wait_for_orders(*arguments)


if __name__ == "__main__":
    main()

"""
Runs a sandbox as a program of the operator's supervisord: `python -I <this file> <socket> <program>`. See
`shim.py`.
"""

import gc
import os
import sys


def main():
    directory = os.path.dirname(os.path.abspath(__file__))
    # Removes the directory of this file. `-I` does not add it, an ordinary start does.
    sys.path[:] = [entry for entry in sys.path if entry != directory]
    sys.path.insert(0, os.path.dirname(directory))
    gc.disable()
    os.umask(0o077)
    os.chdir("/")

    from rookery_zygote import shim, user_process

    try:
        shim.serve(sys.argv[1], sys.argv[2])
    except shim.BecomeUser as child:
        plan = child.plan
    user_process.wait_for_orders(plan.layers, plan.title, plan.resident)


if __name__ == "__main__":
    main()

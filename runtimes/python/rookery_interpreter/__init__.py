"""
The code interpreter of a sandbox: an HTTP server that runs cells of code in contexts.

Each context is a process of its own. The server (`server.py`) never runs user code.
Both need Python 3.6 or newer and only the standard library.
"""

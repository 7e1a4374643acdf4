"""The zygote of process sandboxes: a resident process that forks instances (see
docs/internals/process-sandbox.md).

Uses the standard library only, and the syntax of Python 3.6. User code cannot import anything from here.
"""

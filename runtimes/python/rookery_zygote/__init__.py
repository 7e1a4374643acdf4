"""The zygote of process sandboxes: a resident process that forks instances (see docs/process-sandbox.md).

Standard library only, syntax of Python 3.6. Nothing here is part of what the user's code may import.
"""

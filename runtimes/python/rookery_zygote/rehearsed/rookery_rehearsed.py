"""The agent of the rehearsal (see rehearsal.py)."""


def handler(event, context):
    return event

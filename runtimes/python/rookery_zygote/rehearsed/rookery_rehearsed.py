"""The agent of the rehearsal (see rehearsal.py)."""


def handler(event, context):
    return event


def pages(event, context):
    """Of a scout (see prefault.py)."""
    from rookery_zygote import prefault

    return prefault.runs()

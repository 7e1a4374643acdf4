"""The handler that every row of the bench calls."""


def handle(event, context):
    return event

"""Does not load: the colon is missing."""
def handler(event, context)
    return event

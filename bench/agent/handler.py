"""Handlers that the rows of the bench call."""


def handle(event, context):
    return event


def keep(event, context):
    """Changes a state of about `event` bytes; 0 changes nothing."""
    if event:
        state = context.state
        state["turn"] = state.get("turn", 0) + 1
        if len(state.get("text", "")) != event:
            state["text"] = "x" * event
    return event


async def tick(event, context):
    import asyncio

    for number in range(600):
        yield str(number)
        await asyncio.sleep(1)

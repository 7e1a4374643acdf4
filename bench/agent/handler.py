"""Handlers that the rows of the bench call."""


def handle(event, context):
    return event


async def tick(event, context):
    import asyncio

    for number in range(600):
        yield str(number)
        await asyncio.sleep(1)

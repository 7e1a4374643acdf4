"""Agent whose sandbox runs the commands of interpreter.py. The handler itself has no work to do."""


def handle(event, context):
    return {'ready': True}

"""A function of which the service starts more instances while calls wait."""

import time


def handle(event, context):
    time.sleep(0.2)
    return {'square': event['number'] ** 2, 'process': context.instance_id}

"""Calls a function for 20 inputs, 8 at a time: `python3 fan_out.py URN`."""

import json
import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

SERVICE = os.environ.get('ROOKERY_ADDRESS', 'http://127.0.0.1:8888')


def call(number):
    url = '%s/serverless/v1/functions/%s/invocations' % (SERVICE, sys.argv[1])
    with urllib.request.urlopen(url, json.dumps({'number': number}).encode(), timeout=60) as response:
        return json.load(response)


with ThreadPoolExecutor(8) as pool:
    results = list(pool.map(call, range(1, 21)))
print('sum of the squares: %d' % sum(result['square'] for result in results))
print('instances: %d' % len({result['process'] for result in results}))

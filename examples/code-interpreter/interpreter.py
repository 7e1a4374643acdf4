"""Runs the code that a model writes in the sandbox of an agent: `python3 interpreter.py AGENT QUESTION`."""

import json
import os
import sys
import urllib.parse
import urllib.request

SERVICE = os.environ.get('ROOKERY_ADDRESS', 'http://127.0.0.1:8888')


def model(question, failure):
    """Stands in for a model: the first answer has a bug, the answer to the traceback is correct.

    Call your model here.
    """
    if failure is None:
        return 'print(sum(row.amount for row in rows))'
    return (
        'import csv\n'
        'amounts = [int(row["amount"]) for row in csv.DictReader(open("/tmp/sales.csv"))]\n'
        'open("/tmp/report.txt", "w").write("rows: %d" % len(amounts))\n'
        'print(sum(amounts))\n'
    )


def request(method, path, body=None, content_type='application/json'):
    sent = urllib.request.Request(SERVICE + path, data=body, method=method, headers={'Content-Type': content_type})
    with urllib.request.urlopen(sent, timeout=60) as response:
        return response.read()


def upload(agent, path, content):
    body = '--part\r\nContent-Disposition: form-data; name="path"\r\n\r\n%s\r\n' % path
    body += '--part\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n\r\n%s\r\n--part--\r\n' % content
    request('POST', '/api/agent/%s/files/upload' % agent, body.encode(), 'multipart/form-data; boundary=part')


def run(agent, code):
    body = json.dumps({'command': ['python3', '-c', code], 'timeout': 10}).encode()
    return json.loads(request('POST', '/api/agent/%s/exec' % agent, body))


agent, question = sys.argv[1:]
upload(agent, '/tmp/sales.csv', 'city,amount\nParis,20\nRome,22\n')
failure = None
for attempt in range(1, 4):
    result = run(agent, model(question, failure))
    if result['returncode'] == 0:
        print('attempt %d: %s' % (attempt, result['stdout'].strip()))
        report = request('GET', '/api/agent/%s/files/download?path=%s' % (agent, urllib.parse.quote('/tmp/report.txt')))
        print('report: %s' % report.decode())
        break
    failure = result['stderr']
    print('attempt %d: %s' % (attempt, failure.strip().splitlines()[-1]))

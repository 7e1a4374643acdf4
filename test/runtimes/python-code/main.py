"""The behaviours of the runtime conformance suite (test/suites/runtime.ts) in Python."""
import os
import sys
import time

calls = []
most = []
running = []


def echo(event, context):
    return event


def fail(event, context):
    raise ValueError('boom')


def exit(event, context):
    os._exit(event['code'])


def count(event, context):
    context.state['count'] = context.state.get('count', 0) + 1
    return context.state['count']


def gate(event, context):
    running.append(1)
    most.append(len(running))
    try:
        while event.get('file') and not os.path.exists(event['file']):
            time.sleep(0.002)
    finally:
        running.pop()
    calls.append(event['number'])
    return {'order': calls, 'most': max(most)}


def sleep(event, context):
    time.sleep(event['seconds'])
    return 'slept'


def not_json(event, context):
    return float('nan')


def text(event, context):
    return 'x' * event['length']


def deep(event, context):
    value = []
    for _ in range(100000):
        value = [value]
    return value


def stream(event, context):
    stream = context.get_stream()
    for part in event['parts']:
        stream.write(part)
    return 'end'


def log(event, context):
    print('a line on stdout')
    sys.stderr.write('a line on stderr\n')
    return None


def flood(event, context):
    line = 'x' * 1023
    for _ in range(event['lines']):
        print(line)
    return 'printed'


def spans(event, context):
    with context.span('outer', {'n': 1, 'text': 'a'}) as outer:
        with context.span('inner'):
            outer.set('late', True)
    with context.span('last'):
        if event.get('fail'):
            raise ValueError('boom')
        return 'done'


def many_spans(event, context):
    for number in range(event['count']):
        with context.span('s', {'number': number}):
            pass


def facts(event, context):
    return {
        'traceId': context.trace_id, 'requestId': context.request_id, 'sessionId': context.session_id,
        'traceparent': context.traceparent, 'headers': context.headers, 'remainingMs': context.remaining_ms(),
        'instanceId': context.instance_id, 'tenant': context.tenant, 'namespace': context.namespace, 'name': context.name,
        'functionName': context.function_name, 'version': context.version, 'memoryMb': context.memory_mb,
        'cpuMillis': context.cpu_millis,
    }


def start(context):
    context.state['count'] = 100


def start_fails(context):
    raise ValueError('boom')


def start_slow(context):
    time.sleep(60)


def stop():
    print('pre_stop has run')


def stop_fails():
    raise ValueError('boom')


def stop_slow():
    time.sleep(60)

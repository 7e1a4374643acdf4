"""
The client of the Lambda Runtime API for Python code that brings none: `python3 lambda_python.py`.

Runs in a process of the user. Imports nothing of the service's own packages.
"""
import sys
import os

# The interpreter has put the directory of this file first, whose modules the code must not see.
sys.path[0] = os.environ['LAMBDA_TASK_ROOT']

import http.client
import importlib
import json
import logging
import time
import traceback

_PREFIX = '/2018-06-01/runtime/'


class LambdaContext(object):
    """The second argument of a handler."""

    def __init__(self, headers):
        environment = os.environ
        client = headers.get('Lambda-Runtime-Client-Context')
        self.aws_request_id = headers['Lambda-Runtime-Aws-Request-Id']
        self.invoked_function_arn = headers['Lambda-Runtime-Invoked-Function-Arn']
        self.function_name = environment['AWS_LAMBDA_FUNCTION_NAME']
        self.function_version = environment['AWS_LAMBDA_FUNCTION_VERSION']
        self.memory_limit_in_mb = environment['AWS_LAMBDA_FUNCTION_MEMORY_SIZE']
        self.log_group_name = environment['AWS_LAMBDA_LOG_GROUP_NAME']
        self.log_stream_name = environment['AWS_LAMBDA_LOG_STREAM_NAME']
        self.identity = CognitoIdentity()
        self.tenant_id = None
        self.client_context = None if client is None else ClientContext(json.loads(client))
        self._deadline_ms = int(headers['Lambda-Runtime-Deadline-Ms'])

    def get_remaining_time_in_millis(self):
        return max(0, self._deadline_ms - int(time.time() * 1000))

    def log(self, message):
        sys.stdout.write(str(message))


class CognitoIdentity(object):
    """The identity of the caller. Callers of this service have none."""

    cognito_identity_id = None
    cognito_identity_pool_id = None


class ClientContext(object):
    """The context that the caller sent."""

    def __init__(self, sent):
        self.custom = sent.get('custom')
        self.env = sent.get('env')
        self.client = sent.get('client')


class _RequestIds(logging.Filter):
    """Adds the id of the running request to records of the log."""

    request_id = ''

    def filter(self, record):
        record.aws_request_id = self.request_id
        return True


def _log_to_stdout():
    """Adds the handler of AWS Lambda to the root logger, which drops records below WARNING without one. Returns its filter."""
    handler = logging.StreamHandler(sys.stdout)
    formatter = logging.Formatter('[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(aws_request_id)s\t%(message)s', '%Y-%m-%dT%H:%M:%S')
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    ids = _RequestIds()
    handler.addFilter(ids)
    logging.getLogger().addHandler(handler)
    return ids


def _refuse(value):
    raise TypeError('Object of type %s is not JSON serializable' % type(value).__name__)


def _main():
    connection = http.client.HTTPConnection(os.environ['AWS_LAMBDA_RUNTIME_API'])
    ids = _log_to_stdout()
    try:
        handler = _load(os.environ['_HANDLER'])
    except BaseException as error:
        kind = 'Runtime.ImportModuleError' if isinstance(error, ImportError) else 'Runtime.UserCodeSyntaxError' if isinstance(
            error, SyntaxError) else 'Runtime.HandlerNotFound' if isinstance(error, AttributeError) else type(error).__name__
        traceback.print_exc()
        _post(connection, 'init/error', _error_of(error, kind))
        sys.exit(1)
    while True:
        connection.request('GET', _PREFIX + 'invocation/next')
        answer = connection.getresponse()
        body, headers = answer.read(), answer.headers
        ids.request_id = headers['Lambda-Runtime-Aws-Request-Id']
        request = 'invocation/%s/' % ids.request_id
        os.environ['_X_AMZN_TRACE_ID'] = headers.get('Lambda-Runtime-Trace-Id', '')
        try:
            value = handler(json.loads(body.decode('utf-8')), LambdaContext(headers))
        except Exception as error:
            traceback.print_exc()
            outcome = 'error', _error_of(error, type(error).__name__)
        else:
            outcome = _encoded(value)
        sys.stdout.flush()
        sys.stderr.flush()
        _post(connection, request + outcome[0], outcome[1])


def _encoded(value):
    try:
        return 'response', json.dumps(value, ensure_ascii=False, default=_refuse).encode('utf-8', 'surrogatepass')
    except Exception as error:
        message = 'Unable to marshal response: %s' % error
        return 'error', json.dumps({'errorMessage': message, 'errorType': 'Runtime.MarshalError', 'stackTrace': []}).encode()


def _load(name):
    path, dot, attribute = name.rpartition('.')
    if not dot:
        raise AttributeError('Bad handler %r: it must be <module>.<function>' % name)
    module = importlib.import_module(path.replace('/', '.'))
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise AttributeError("Handler '%s' missing on module '%s'" % (attribute, path)) from None


def _error_of(error, kind):
    own = os.path.abspath(__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.abspath(frame[0]) != own]
    message = str(error)
    if kind == 'Runtime.ImportModuleError':
        message = "Unable to import module '%s': %s" % (os.environ['_HANDLER'].rpartition('.')[0], error)
    return json.dumps({'errorMessage': message, 'errorType': kind, 'stackTrace': traceback.format_list(frames)}).encode()


def _post(connection, path, body):
    connection.request('POST', _PREFIX + path, body, {'Content-Type': 'application/json'})
    connection.getresponse().read()


if __name__ == '__main__':
    _main()

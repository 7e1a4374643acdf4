import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { boto3 } from './clients.ts';
import { register, writeCode } from './functions.ts';

const PYTHON = `
import json, logging, os, sys, time
logging.getLogger().setLevel(logging.INFO)
started = time.time()
class Odd(Exception):
    pass
def handler(event, context):
    kind = event.get('do')
    if kind == 'facts':
        names = ['_HANDLER', 'LAMBDA_TASK_ROOT', 'AWS_LAMBDA_FUNCTION_NAME', 'AWS_LAMBDA_FUNCTION_VERSION',
                 'AWS_LAMBDA_FUNCTION_MEMORY_SIZE', 'AWS_LAMBDA_LOG_GROUP_NAME', 'AWS_LAMBDA_INITIALIZATION_TYPE', 'OWN']
        return {
            'env': {name: os.environ[name] for name in names}, 'cwd': os.getcwd(), 'request': context.aws_request_id,
            'arn': context.invoked_function_arn, 'left': context.get_remaining_time_in_millis(), 'started': started,
            'client': context.client_context and context.client_context.custom, 'trace': os.environ['_X_AMZN_TRACE_ID'][:7],
        }
    if kind == 'raise':
        raise Odd('b\\u00f6se: "x"')
    if kind == 'exit':
        os._exit(3)
    if kind == 'sys.exit':
        sys.exit(4)
    if kind == 'sleep':
        time.sleep(300)
    if kind == 'set':
        return {1, 2}
    if kind == 'large':
        return 'x' * (7 * 1024 * 1024)
    print('printed', event)
    logging.getLogger('own').info('logged %s for %s', event, context.identity.cognito_identity_id)
    return {'event': event, 'started': started}
`;
const NODE = `
let calls = 0;
exports.handler = async (event, context) => {
  if (event.do === 'raise') { const error = new Error('no'); error.name = 'Custom.Kind'; throw error; }
  return { event, calls: ++calls, left: context.getRemainingTimeInMillis() > 0, name: context.functionName };
};
exports.called = (event, context, callback) => setImmediate(callback, null, { called: event });
exports.streamed = awslambda.streamifyResponse(async (event, out) => {
  const body = awslambda.HttpResponseStream.from(out, { statusCode: 201 });
  for (const part of ['a', 'b', 'ä']) body.write(part);
  if (event.do === 'raise') throw new TypeError('late');
  body.end();
});
`;
/** A runtime of its own in shell, whose responses are chunked. */
const BOOTSTRAP = `#!/bin/sh
exec python3 - <<'END'
import http.client, os
api = http.client.HTTPConnection(os.environ['AWS_LAMBDA_RUNTIME_API'])
while True:
    api.request('GET', '/2018-06-01/runtime/invocation/next')
    answer = api.getresponse()
    body, id = answer.read(), answer.headers['Lambda-Runtime-Aws-Request-Id']
    api.request('POST', '/2018-06-01/runtime/invocation/%s/response' % id, iter([b'{"got":', body, b'}']))
    assert api.getresponse().read() == b'{"status":"OK"}'
END
`;

/** Defines \`invoke\`, which returns the payload and the kind of failure. */
const INVOKE = `
def invoke(name, event={}, **options):
    answer = client.invoke(FunctionName=name, Payload=json.dumps(event), **options)
    return [json.loads(answer['Payload'].read()), answer.get('FunctionError')]
`;

describeWith(['lambda', 'root', 'namespaces'], 'code of AWS Lambda', () => {
  let directory: string;
  let served: Served;
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-lambda-'));
    const place = (name: string) => join(directory, name);
    served = await Served.start({ args: [STOP_AGENTS] });
    const plain = writeCode(place('plain'), { 'app.py': PYTHON });
    const ric = writeCode(place('ric'), { 'app.py': PYTHON }, true);
    const environment = { OWN: 'mine' };
    await register(served, 'plain', plain, { environment });
    await register(served, 'ric', ric, { environment });
    await register(served, 'late', ric, { timeout: 15 });
    const node = writeCode(place('node'), { 'app.js': NODE });
    await register(served, 'node', node);
    await register(served, 'called', node, { handler: 'app.called' });
    await register(served, 'streamed', node, { handler: 'app.streamed' });
    await register(served, 'own', writeCode(place('own'), { bootstrap: BOOTSTRAP }));
    await register(served, 'missing', plain, { handler: 'absent.handler' });
    await register(served, 'nothing', plain, { handler: 'app.absent' });
    await register(served, 'broken', writeCode(place('broken'), { 'app.py': 'import absent_package\n' }, true));
  });
  afterAll(async () => {
    await served?.remove();
    rmSync(directory, { recursive: true, force: true });
  });

  async function run(source: string): Promise<readonly unknown[]> {
    return await boto3(served.frontendUrl, { id: 'any', secret: 'any' }, INVOKE + source);
  }

  test.each(['plain', 'ric'])(
    'the Python function "%s" gets the facts of AWS Lambda',
    async name => {
      const [first, second] = await run(`
import base64
context = base64.b64encode(json.dumps({'custom': {'k': '\\u00e4'}}).encode()).decode()
show(invoke('${name}', {'do': 'facts'}, ClientContext=context))
show(invoke('${name}', {'do': 'facts'}))`);
      expect(first).toEqual([
        {
          env: {
            ...{ _HANDLER: 'app.handler', LAMBDA_TASK_ROOT: '/var/task', OWN: 'mine' },
            ...{ AWS_LAMBDA_FUNCTION_NAME: name, AWS_LAMBDA_FUNCTION_VERSION: '$LATEST' },
            ...{ AWS_LAMBDA_FUNCTION_MEMORY_SIZE: '256', AWS_LAMBDA_LOG_GROUP_NAME: `/aws/lambda/${name}` },
            AWS_LAMBDA_INITIALIZATION_TYPE: 'on-demand',
          },
          ...{ cwd: '/var/task', request: expect.stringMatching(/.{8}/), trace: 'Root=1-' },
          ...{ arn: expect.stringMatching(new RegExp(`^arn:aws:lambda:.*:function:${name}$`)), client: { k: 'ä' } },
          ...{ left: expect.any(Number), started: expect.any(Number) },
        },
        null,
      ]);
      const [one, two] = [first, second].map(answer => (answer as [Record<string, unknown>])[0]);
      expect(two).toMatchObject({ started: one?.started, client: null });
      expect(two?.request).not.toBe(one?.request);
      expect(two?.left).toBeGreaterThan(0);
      expect(two?.left).toBeLessThanOrEqual(60_000);
    },
    120_000,
  );

  test.each(['plain', 'ric'])(
    'failures of the Python function "%s" are those of AWS Lambda',
    async name => {
      const shown = await run(`
for what in ['raise', 'set', 'large', 'exit', 'sys.exit', '']:
    show(invoke('${name}', {'do': what}))`);
      const [raised, set, large, exited, left, last] = shown as [Record<string, unknown>, string | null][];
      expect(raised).toEqual([
        expect.objectContaining({
          errorType: 'Odd',
          errorMessage: 'böse: "x"',
          stackTrace: [expect.stringContaining('app.py')],
        }),
        'Unhandled',
      ]);
      expect(set).toEqual([expect.objectContaining({ errorType: 'Runtime.MarshalError' }), 'Unhandled']);
      expect(large).toEqual([expect.objectContaining({ errorType: 'Function.ResponseSizeTooLarge' }), 'Unhandled']);
      const status = (code: number) =>
        expect.stringMatching(new RegExp(`Runtime exited with error: exit status ${code}$`));
      expect(exited).toEqual([{ errorType: 'Runtime.ExitError', errorMessage: status(3) }, 'Unhandled']);
      expect(left?.[1]).toBe('Unhandled');
      expect(last).toEqual([expect.objectContaining({ event: { do: '' } }), null]);
    },
    120_000,
  );

  test('a call above its time limit fails alone', async () => {
    const [late, next] = await run(`show(invoke('late', {'do': 'sleep'}))\nshow(invoke('late'))`);
    const failure = { errorType: 'Sandbox.Timedout', errorMessage: expect.stringContaining('timed out') };
    expect(late).toEqual([expect.objectContaining(failure), 'Unhandled']);
    expect(next).toEqual([expect.objectContaining({ event: {} }), null]);
  }, 120_000);

  test('handlers of Node.js return, call back and stream', async () => {
    const shown = await run(`
show(invoke('node', {'a': '\\u00e4'}))
show(invoke('node', {'do': 'raise'}))
show(invoke('node'))
show(invoke('called', {'b': 1}))
show(invoke('streamed'))
show(invoke('streamed', {'do': 'raise'}))`);
    const [first, raised, third, called, streamed, late] = shown;
    expect(first).toEqual([{ event: { a: 'ä' }, calls: 1, left: true, name: 'node' }, null]);
    expect(raised).toEqual([
      {
        errorType: 'Custom.Kind',
        errorMessage: 'no',
        trace: expect.arrayContaining([expect.stringContaining('app.js')]),
      },
      'Unhandled',
    ]);
    expect(third).toEqual([expect.objectContaining({ calls: 2 }), null]);
    expect(called).toEqual([{ called: { b: 1 } }, null]);
    expect(streamed).toEqual([{ statusCode: 201, body: 'abä' }, null]);
    expect(late).toEqual([expect.objectContaining({ errorType: 'TypeError', errorMessage: 'late' }), 'Unhandled']);
  }, 120_000);

  test('a bootstrap is the program of its function', async () => {
    expect(await run(`show(invoke('own', {'a': 1}))\nshow(invoke('own', {'a': 2}))`)).toEqual([
      [{ got: { a: 1 } }, null],
      [{ got: { a: 2 } }, null],
    ]);
  }, 120_000);

  test.each([
    ['missing', 'Runtime.ImportModuleError', "Unable to import module 'absent'"],
    ['nothing', 'Runtime.HandlerNotFound', "Handler 'absent' missing on module 'app'"],
    ['broken', 'Runtime.ImportModuleError', "Unable to import module 'app': No module named 'absent_package'"],
  ])(
    'the function "%s" reports %s',
    async (name, errorType, message) => {
      const [failed] = await run(`show(invoke('${name}'))`);
      expect(failed).toEqual([
        expect.objectContaining({ errorType, errorMessage: expect.stringContaining(message) }),
        'Unhandled',
      ]);
    },
    120_000,
  );

  test.each(['plain', 'ric'])(
    'records of the Python function "%s" reach the log in the format of AWS Lambda',
    async name => {
      const [id, tail] = await run(`
import base64
tail = ''
# On a busy machine, a record may reach the log after the answer.
while 'logged' not in tail:
    answer = client.invoke(FunctionName='${name}', Payload='{"n": 1}', LogType='Tail')
    id, tail = answer['ResponseMetadata']['RequestId'], base64.b64decode(answer['LogResult']).decode()
    tail = tail if id in tail else ''
show(id)
show(tail)`);
      const time = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/.source;
      expect(tail).toMatch(new RegExp(`\\[INFO\\]\t${time}\t${id}\tlogged \\{'n': 1\\} for None\n`));
    },
    120_000,
  );

  test('the tail of the log has what the call printed, and events run later', async () => {
    const [tail, status] = await run(`
import base64
show(base64.b64decode(client.invoke(FunctionName='ric', Payload='{"n": 1}', LogType='Tail')['LogResult']).decode())
show(client.invoke(FunctionName='ric', Payload='{"n": 2}', InvocationType='Event')['StatusCode'])`);
    expect(tail).toContain("printed {'n': 1}");
    expect(status).toBe(202);
  }, 120_000);

  test("the service's own route answers the value, and 4002 with the message of a failure", async () => {
    const call = async (event: object) => {
      const url = `${served.frontendUrl}/serverless/v1/functions/sn:cn:yrk:default:function:0@default@plain:$latest/invocations`;
      const answer = await fetch(url, { method: 'POST', body: JSON.stringify(event) });
      return { status: answer.status, body: (await answer.json()) as unknown };
    };
    expect(await call({ a: 1 })).toMatchObject({ status: 200, body: { event: { a: 1 } } });
    expect(await call({ do: 'raise' })).toMatchObject({
      status: 500,
      body: { code: 4002, message: expect.stringContaining('Odd: böse: "x"') },
    });
  }, 120_000);
});

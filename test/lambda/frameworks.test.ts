import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { boto3, javascript } from './clients.ts';
import { lambdaPackages } from './packages.ts';

const MANGUM = `
import contextlib
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from mangum import Mangum
from pydantic import BaseModel

class Order(BaseModel):
    name: str
    count: int

class Refused(Exception):
    pass

started = []

@contextlib.asynccontextmanager
async def lifespan(app):
    started.append(True)
    yield

app = FastAPI(lifespan=lifespan)

@app.exception_handler(Refused)
async def refuse(request, error):
    return JSONResponse({'refused': str(error)}, status_code=418)

@app.post('/orders/{number}')
async def order(number: int, body: Order, request: Request, response: Response, q: str = ''):
    response.set_cookie('seen', 'yes')
    scope = request.scope
    return {
        'number': number, 'order': body, 'q': q, 'agent': request.headers['user-agent'], 'path': request.url.path,
        'function': scope['aws.context'].function_name, 'left': scope['aws.context'].get_remaining_time_in_millis() > 0,
        'started': len(started) > 0,
    }

@app.get('/bytes')
def picture():
    return Response(b'\\x00\\xff', media_type='image/png')

@app.get('/refused')
def refused():
    raise Refused('no')

handler = Mangum(app)
`;

const POWERTOOLS = `
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

logger = Logger(service='orders')
metrics = Metrics(namespace='shop', service='orders')
app = APIGatewayHttpResolver()
processor = BatchProcessor(event_type=EventType.SQS)

@app.get('/orders/<number>')
def order(number):
    logger.info('order was read', number=number)
    metrics.add_metric(name='Reads', unit=MetricUnit.Count, value=1)
    return {'number': number, 'function': app.lambda_context.function_name}

@logger.inject_lambda_context
@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event, context):
    return app.resolve(event, context)

def check(record):
    if record.json_body['n'] == 2:
        raise ValueError('two')

def batch(event, context):
    return process_partial_response(event=event, record_handler=check, processor=processor, context=context)

@logger.inject_lambda_context(log_event=True)
def plain(event, context):
    raise ValueError('no')
`;

const EXPRESS = `
const express = require('express');
const serverless = require('serverless-http');
const app = express();
app.use(express.json());
app.post('/orders/:number', (request, response) => {
  response.cookie('seen', 'yes').status(201).json({
    number: request.params.number,
    order: request.body,
    q: request.query.q,
    agent: request.get('user-agent'),
    function: request.context.functionName,
  });
});
app.get('/bytes', (request, response) => response.type('image/png').send(Buffer.from([0, 255])));
app.get('/broken', () => {
  throw new Error('no');
});
exports.handler = serverless(app, {
  binary: ['image/*'],
  request(request, event, context) {
    request.context = context;
  },
});
`;

/** Defines `create`, which uploads a zip of packages with one file of code, and `invoke`. */
const UPLOAD = `
import io, os, zipfile
def create(name, packages, file, text, **options):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as archive:
        for place, _, files in os.walk(packages):
            for each in files:
                path = os.path.join(place, each)
                archive.write(path, os.path.relpath(path, packages))
        archive.writestr(file, text)
    settings = dict(dict(Handler='app.handler', MemorySize=1769, Timeout=60), **options)
    client.create_function(FunctionName=name, Role='arn:aws:iam::1:role/any', Code={'ZipFile': out.getvalue()}, **settings)
def invoke(name, event, **options):
    answer = client.invoke(FunctionName=name, Payload=json.dumps(event), **options)
    return [json.loads(answer['Payload'].read()), answer.get('FunctionError')]
`;

/** Returns an event of an HTTP API of Amazon API Gateway, format 2.0. */
function httpEvent(method: string, path: string, body?: object, rawQueryString = '') {
  return {
    ...{ version: '2.0', routeKey: '$default', rawPath: path, rawQueryString, isBase64Encoded: false },
    headers: {
      host: 'shop.example',
      'user-agent': 'test',
      'content-type': 'application/json',
      'x-forwarded-proto': 'https',
    },
    requestContext: {
      ...{ accountId: '1', apiId: 'api', domainName: 'shop.example', requestId: 'id', stage: '$default' },
      http: { method, path, protocol: 'HTTP/1.1', sourceIp: '192.0.2.1', userAgent: 'test' },
    },
    ...(rawQueryString !== '' && { queryStringParameters: Object.fromEntries(new URLSearchParams(rawQueryString)) }),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  };
}

/** An answer of a framework, in the format of Amazon API Gateway. */
interface HttpAnswer {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly cookies?: readonly string[];
  readonly isBase64Encoded?: boolean;
}

describeWith(['lambda', 'root', 'namespaces'], 'frameworks of AWS Lambda', () => {
  const key = { id: 'any', secret: 'any' };
  const ORDER = { name: 'ä', count: 2 };
  let served: Served;
  beforeAll(async () => {
    served = await Served.start({ args: [STOP_AGENTS] });
    await run(`
web, powertools = ${JSON.stringify(lambdaPackages.codeOf('code-web'))}, ${JSON.stringify(lambdaPackages.codeOf('code-powertools'))}
create('mangum', web, 'app.py', ${JSON.stringify(MANGUM)}, Runtime='python3.12')
tools = ${JSON.stringify(POWERTOOLS)}
create('tools', powertools, 'app.py', tools, Runtime='python3.12')
create('batch', powertools, 'app.py', tools, Runtime='python3.12', Handler='app.batch')
create('plain', powertools, 'app.py', tools, Runtime='python3.12', Handler='app.plain')
create('express', ${JSON.stringify(lambdaPackages.homeOf('node-web'))}, 'app.js', ${JSON.stringify(EXPRESS)}, Runtime='nodejs22.x')`);
  }, 120_000);
  afterAll(() => served?.remove());

  async function run(source: string): Promise<readonly unknown[]> {
    return await boto3(served.frontendUrl, key, UPLOAD + source);
  }

  /** Invokes a function once per event, and returns the answers of its framework. */
  async function answersOf(name: string, events: readonly object[]): Promise<readonly HttpAnswer[]> {
    const shown = await run(`
for event in json.loads(${JSON.stringify(JSON.stringify(events))}):
    show(invoke('${name}', event))`);
    return (shown as [HttpAnswer, string | null][]).map(([answer, failure]) => {
      expect(failure, JSON.stringify(answer)).toBeNull();
      return answer;
    });
  }

  test('FastAPI answers through Mangum', async () => {
    const [ordered, wrong, picture, refused] = await answersOf('mangum', [
      httpEvent('POST', '/orders/7', ORDER, 'q=a%20b'),
      httpEvent('POST', '/orders/7', { name: 'no count' }),
      httpEvent('GET', '/bytes'),
      httpEvent('GET', '/refused'),
    ]);
    expect(ordered).toMatchObject({
      statusCode: 200,
      isBase64Encoded: false,
      cookies: [expect.stringMatching(/^seen=yes/)],
    });
    expect(JSON.parse(ordered?.body ?? '')).toEqual({
      ...{ number: 7, order: ORDER, q: 'a b', agent: 'test', path: '/orders/7' },
      ...{ function: 'mangum', left: true, started: true },
    });
    expect(wrong?.statusCode).toBe(422);
    expect(wrong?.body).toContain('count');
    expect(picture).toMatchObject({ statusCode: 200, isBase64Encoded: true, body: 'AP8=' });
    expect(refused).toMatchObject({ statusCode: 418, body: '{"refused":"no"}' });
  }, 120_000);

  test('Powertools routes, logs and counts', async () => {
    const [answer] = await answersOf('tools', [httpEvent('GET', '/orders/7')]);
    expect(answer).toMatchObject({ statusCode: 200, body: '{"number":"7","function":"tools"}' });
    const url = `${served.frontendUrl}/serverless/v1/functions/sn:cn:yrk:default:function:0@default@tools:$latest/logs`;
    // On a busy machine, lines may reach the log after the answer.
    const lines = await vi.waitFor(
      async () => {
        const log = await (await fetch(url)).text();
        for (const word of ['order was read', '"Reads"', '"ColdStart"']) expect(log).toContain(word);
        return log
          .split('\n')
          .filter(line => line.includes('{'))
          .map(line => JSON.parse(line.slice(line.indexOf('{'))) as Record<string, unknown>);
      },
      { timeout: 60_000 },
    );
    expect(lines).toContainEqual(
      expect.objectContaining({
        ...{ level: 'INFO', message: 'order was read', number: '7', service: 'orders', cold_start: true },
        ...{ function_name: 'tools', function_memory_size: '1769', function_request_id: expect.stringMatching(/.{8}/) },
        ...{ xray_trace_id: expect.stringMatching(/^1-/), function_arn: expect.stringContaining(':function:tools') },
      }),
    );
    expect(lines).toContainEqual(expect.objectContaining({ Reads: [1], service: 'orders' }));
    expect(lines).toContainEqual(expect.objectContaining({ ColdStart: [1], function_name: 'tools' }));
  }, 120_000);

  test('Powertools reports the records of a batch that failed', async () => {
    const Records = [1, 2, 3].map(n => ({ messageId: `m${n}`, body: JSON.stringify({ n }), eventSource: 'aws:sqs' }));
    const [partial, raised] = await run(`
show(invoke('batch', json.loads(${JSON.stringify(JSON.stringify({ Records }))})))
show(invoke('plain', {'n': 1}))`);
    expect(partial).toEqual([{ batchItemFailures: [{ itemIdentifier: 'm2' }] }, null]);
    expect(raised).toEqual([expect.objectContaining({ errorType: 'ValueError', errorMessage: 'no' }), 'Unhandled']);
  }, 120_000);

  test('Express answers through serverless-http', async () => {
    const events = [
      httpEvent('POST', '/orders/7', ORDER, 'q=a%20b'),
      httpEvent('GET', '/bytes'),
      httpEvent('GET', '/broken'),
      httpEvent('GET', '/absent'),
    ];
    const shown = await javascript(
      served.frontendUrl,
      key,
      `for (const event of ${JSON.stringify(events)}) {
        const input = { FunctionName: 'express', Payload: JSON.stringify(event) };
        const { Payload, FunctionError } = await client.send(new sdk.InvokeCommand(input));
        show([JSON.parse(Payload.transformToString()), FunctionError ?? null]);
      }`,
    );
    const [ordered, picture, broken, absent] = (shown as [HttpAnswer, string | null][]).map(([answer]) => answer);
    expect(shown.map(each => (each as [HttpAnswer, string | null])[1])).toEqual([null, null, null, null]);
    expect(ordered).toMatchObject({ statusCode: 201, isBase64Encoded: false });
    expect(JSON.stringify(ordered)).toContain('seen=yes');
    expect(JSON.parse(ordered?.body ?? '')).toEqual({
      ...{ number: '7', order: ORDER, q: 'a b', agent: 'test', function: 'express' },
    });
    expect(picture).toMatchObject({ statusCode: 200, isBase64Encoded: true, body: 'AP8=' });
    expect(broken?.statusCode).toBe(500);
    expect(absent?.statusCode).toBe(404);
  }, 120_000);
});

import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { boto3, javascript } from './clients.ts';
import { register, writeCode } from './functions.ts';

const LARGE = { pieces: 20, bytes: 1024 * 1024 };
const NODE = `
const large = Buffer.alloc(${LARGE.bytes}, Buffer.from([0, 1, 254, 255, 10, 13]));
exports.handler = awslambda.streamifyResponse(async (event, out) => {
  console.log('streams', event.do);
  if (event.do === 'fail early') throw new RangeError('early');
  if (event.do === 'nothing') return;
  if (event.do === 'head') out = awslambda.HttpResponseStream.from(out, { statusCode: 201 });
  if (event.do === 'large') {
    for (let n = 0; n < ${LARGE.pieces}; n++) {
      if (!out.write(large)) await new Promise(resolve => out.once('drain', resolve));
    }
    return;
  }
  out.write(Buffer.from([0, 255]));
  if (event.do === 'wait') await new Promise(() => {});
  if (event.do === 'fail late') throw new RangeError('late');
  out.write('end');
  out.end();
});
exports.plain = async event => ({ got: event });
`;
const PYTHON = `
def handler(event, context):
    yield 'one'
    yield {'two': 2}
`;

/** Defines `stream`, which returns the joined chunks in hexadecimal and the last message of a stream. */
const READ = `
def stream(name, event={}, **options):
    answer = client.invoke_with_response_stream(FunctionName=name, Payload=json.dumps(event), **options)
    chunks, end = b'', None
    for message in answer['EventStream']:
        assert end is None
        if 'PayloadChunk' in message:
            chunks += message['PayloadChunk']['Payload']
        else:
            end = message['InvokeComplete']
    return [chunks.hex(), end]
`;

/** Defines `open`, which resolves to the messages of a stream. */
const OPEN = `
async function open(FunctionName, event) {
  const input = { FunctionName, Payload: JSON.stringify(event) };
  return (await client.send(new sdk.InvokeWithResponseStreamCommand(input))).EventStream;
}
`;

function hex(text: string): string {
  return Buffer.from(text).toString('hex');
}

describeWith(['lambda', 'root', 'namespaces'], 'response streams of AWS Lambda', () => {
  const key = { id: 'any', secret: 'any' };
  let directory: string;
  let served: Served;
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-lambda-'));
    served = await Served.start({ args: [STOP_AGENTS] });
    const node = writeCode(join(directory, 'node'), { 'app.js': NODE });
    await register(served, 'streamed', node);
    await register(served, 'waiting', node);
    await register(served, 'plain', node, { handler: 'app.plain' });
    const python = writeCode(join(directory, 'python'), { 'app.py': PYTHON });
    await register(served, 'generator', python, { runtime: 'python3.11', handler: 'app.handler' });
  });
  afterAll(async () => {
    await served?.remove();
    rmSync(directory, { recursive: true, force: true });
  });

  async function run(source: string): Promise<readonly unknown[]> {
    return await boto3(served.frontendUrl, key, READ + source);
  }

  async function runJavascript(source: string): Promise<readonly unknown[]> {
    return await javascript(served.frontendUrl, key, OPEN + source);
  }

  test('boto3 reads the bytes of a handler that streams', async () => {
    const shown = await run(`
answer = client.invoke_with_response_stream(FunctionName='streamed', Payload='{}')
show([answer['ExecutedVersion'], answer['ResponseStreamContentType']])
list(answer['EventStream'])
show(stream('streamed'))
show(stream('streamed', {'do': 'head'}))
show(stream('streamed', {'do': 'nothing'}))`);
    const [facts, bytes, head, nothing] = shown;
    expect(facts).toEqual(['$LATEST', 'application/vnd.amazon.eventstream']);
    expect(bytes).toEqual([`00ff${hex('end')}`, {}]);
    expect(head).toEqual([`${hex('{"statusCode":201}')}${'00'.repeat(8)}00ff${hex('end')}`, {}]);
    expect(nothing).toEqual(['', {}]);
  }, 120_000);

  test('a failure is the end of the stream', async () => {
    const shown = await run(`
show(stream('streamed', {'do': 'fail early'}))
show(stream('streamed', {'do': 'fail late'}))
show(stream('streamed'))`);
    const [early, late, next] = shown as [string, { readonly ErrorCode?: string; readonly ErrorDetails?: string }][];
    expect(early).toEqual(['', { ErrorCode: 'Unhandled', ErrorDetails: expect.any(String) }]);
    expect(JSON.parse(early?.[1].ErrorDetails ?? '')).toMatchObject({ errorType: 'RangeError', errorMessage: 'early' });
    expect(late).toEqual(['00ff', { ErrorCode: 'Unhandled', ErrorDetails: expect.any(String) }]);
    expect(JSON.parse(late?.[1].ErrorDetails ?? '')).toMatchObject({ errorType: 'RangeError', errorMessage: 'late' });
    expect(next).toEqual([`00ff${hex('end')}`, {}]);
  }, 120_000);

  test('functions that do not stream, and those of other runtimes, are streams too', async () => {
    const shown = await run(`
import base64
show(stream('plain', {'a': 1}))
show(stream('generator'))
log = ''
# On a busy machine, a line may reach the log after the answer.
while 'streams log' not in log:
    log = base64.b64decode(stream('streamed', {'do': 'log'}, LogType='Tail')[1]['LogResult']).decode()
show(log)`);
    const [plain, generator, log] = shown;
    expect(plain).toEqual([hex('{"got":{"a":1}}'), {}]);
    expect(generator).toEqual([hex('one{"two":2}'), {}]);
    expect(log).toContain('streams log');
  }, 120_000);

  test('refusals come before the stream', async () => {
    const shown = await run(`
call = client.invoke_with_response_stream
show(failure(call, FunctionName='absent', Payload='{}'))
show(failure(call, FunctionName='streamed', Payload='{'))
show(failure(call, FunctionName='streamed', InvocationType='Event', Payload='{}'))
show(call(FunctionName='streamed', InvocationType='DryRun')['ResponseMetadata']['HTTPStatusCode'])`);
    expect(shown).toEqual([
      ['ResourceNotFoundException', 404, expect.stringContaining('absent')],
      ['InvalidRequestContentException', 400, expect.any(String)],
      ['InvalidParameterValueException', 400, expect.stringContaining('RequestResponse or DryRun, got "Event"')],
      204,
    ]);
  }, 120_000);

  test('the JavaScript client reads streams of any size', async () => {
    const [size, sha256, end] = await runJavascript(`
      let bytes = 0;
      let end = null;
      const hash = process.getBuiltinModule('node:crypto').createHash('sha256');
      for await (const { PayloadChunk, InvokeComplete } of await open('streamed', { do: 'large' })) {
        bytes += PayloadChunk?.Payload.length ?? 0;
        if (PayloadChunk) hash.update(PayloadChunk.Payload);
        end = InvokeComplete ?? end;
      }
      show(bytes);
      show(hash.digest('hex'));
      show(end);`);
    const piece = Buffer.alloc(LARGE.bytes, Buffer.from([0, 1, 254, 255, 10, 13]));
    const hash = createHash('sha256');
    for (let n = 0; n < LARGE.pieces; n++) hash.update(piece);
    expect({ size, end }).toEqual({ size: LARGE.pieces * LARGE.bytes, end: {} });
    expect(sha256).toBe(hash.digest('hex'));
  }, 120_000);

  test('chunks arrive while the handler runs, and a client that leaves ends its call', async () => {
    const [first] = await runJavascript(`
      for await (const { PayloadChunk } of await open('waiting', { do: 'wait' })) {
        show(Buffer.from(PayloadChunk.Payload).toString('hex'));
        process.exit(0);
      }`);
    expect(first).toBe('00ff');
    expect(await run(`show(stream('waiting'))`)).toEqual([[`00ff${hex('end')}`, {}]]);
  }, 120_000);
});

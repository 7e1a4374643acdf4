import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Served } from '../../scripts/served.ts';
import { type OtlpReceiver, otlpReceiver, type ReceivedSpan } from '../parts/otlp-receiver.ts';
import { Bed } from './agents.ts';

const HANDLERS = `
def seen(event, context):
    return context.traceparent
def spans(event, context):
    with context.span('fetch', {'rows': 3, 'password': 'hunter2'}):
        with context.span('parse'):
            pass
    with context.span('save'):
        raise ValueError('no table')
def fail(event, context):
    raise ValueError('no')
`;

const CALLERS_SPAN = '00f067aa0ba902b7';
const URN = (name: string) => `sn:cn:yrk:default:function:0@e2e@${name}:$latest`;
let traces = 0;
/** Returns a new trace id of a client. */
const newTrace = () => (++traces).toString(16).padStart(32, 'a');
const traceparentOf = (trace: string, flags = '01') => `00-${trace}-${CALLERS_SPAN}-${flags}`;

describe('spans', () => {
  let collector: OtlpReceiver;
  let bed: Bed;
  beforeAll(async () => {
    collector = await otlpReceiver();
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-key=of the operator',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=test',
      OTEL_BSP_SCHEDULE_DELAY: '50',
    };
    bed = await Bed.start({ 'code.py': HANDLERS }, { env });
    for (const handler of ['seen', 'spans', 'fail', 'missing']) await register(handler);
  });
  afterAll(async () => {
    await bed?.[Symbol.asyncDispose]();
    await collector?.[Symbol.asyncDispose]();
  });

  const register = async (handler: string) => {
    const body = {
      ...{ name: `0@e2e@${handler}`, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128 },
      ...{ handler: `code.${handler}`, storageType: 'local', codePath: bed.codeDir },
    };
    expect((await bed.ask('POST', '/serverless/v1/functions', body, { meta: true })).status).toBe(200);
  };
  const call = (name: string, headers: Record<string, string> = {}) =>
    bed.ask('POST', `/serverless/v1/functions/${URN(name)}/invocations`, {}, { headers });
  /** Waits until a trace has spans with all `names`; returns a lookup by name. */
  const spansOf = (traceId: string, names: readonly string[]) =>
    vi.waitFor(
      () => {
        const found = collector.spans.filter(span => span.traceId === traceId);
        expect(found.map(({ name }) => name).sort()).toEqual([...names].sort());
        return (name: string) => found.find(span => span.name === name) as ReceivedSpan;
      },
      { timeout: 20_000 },
    );

  it("spans of a create and of calls have the client's span as parent and arrive with the configured headers", async () => {
    const created = newTrace();
    const headers = { traceparent: traceparentOf(created) };
    const answer = await bed.ask('POST', '/api/agent', bed.createBody('traced', 'code.seen'), { headers });
    const id = String(answer.body.instance_id);
    const ofCreate = await spansOf(created, ['create agent', 'start']);
    expect(ofCreate('create agent').parentSpanId).toBe(CALLERS_SPAN);
    expect(ofCreate('create agent').attributes.get('rookery.instance_id')).toBe(id);
    expect(ofCreate('start').parentSpanId).toBe(ofCreate('create agent').spanId);
    const { resource } = ofCreate('start');
    expect(Object.fromEntries(resource)).toMatchObject({ 'service.name': 'rookery', 'deployment.environment': 'test' });
    expect(collector.requests[0]).toMatchObject({ path: '/v1/traces', headers: { 'x-key': 'of the operator' } });

    const called = newTrace();
    const { body } = await bed.invoke(id, {}, { headers: { traceparent: traceparentOf(called) } });
    const ofCall = await spansOf(called, ['invoke agent', 'run']);
    expect(ofCall('invoke agent')).toMatchObject({ parentSpanId: CALLERS_SPAN, status: 0 });
    // Spans that a library of the handler makes are children of `run`.
    expect(ofCall('run').parentSpanId).toBe(ofCall('invoke agent').spanId);
    expect(body.data).toBe(`00-${called}-${ofCall('run').spanId}-01`);
  });

  it('spans of a first function call include the stages of the cold start, unlike those of a second call', async () => {
    const cold = newTrace();
    expect((await call('seen', { traceparent: traceparentOf(cold) })).status).toBe(200);
    const first = await vi.waitFor(() => {
      const found = collector.spans.filter(span => span.traceId === cold);
      expect(found.map(({ name }) => name)).toContain('invoke function');
      return (name: string) => found.find(span => span.name === name) as ReceivedSpan;
    }, 20_000);
    const root = first('invoke function');
    expect(root.parentSpanId).toBe(CALLERS_SPAN);
    expect(root.attributes.get('rookery.function')).toBe(URN('seen'));
    expect(first('cold start').parentSpanId).toBe(root.spanId);
    expect(first('start').parentSpanId).toBe(first('cold start').spanId);
    expect(first('load').parentSpanId).toBe(first('cold start').spanId);
    expect(first('run').parentSpanId).toBe(root.spanId);
    expect(first('start').end).toBeLessThanOrEqual(first('load').end);
    expect(first('cold start').start).toBeLessThanOrEqual(first('run').start);

    const warm = newTrace();
    await call('seen', { traceparent: traceparentOf(warm) });
    const second = await spansOf(warm, ['invoke function', 'run']);
    expect(second('run').parentSpanId).toBe(second('invoke function').spanId);
  });

  it('spans of the code of functions and agents are below run, without hidden values, and marked as failed', async () => {
    const agent = await bed.create('with-spans', 'code.spans');
    const [ofFunction, ofAgent] = [newTrace(), newTrace()];
    // The first call starts an instance.
    await call('spans');
    await call('spans', { traceparent: traceparentOf(ofFunction) });
    await bed.invoke(agent, {}, { headers: { traceparent: traceparentOf(ofAgent) } });
    for (const [trace, root] of [
      [ofFunction, 'invoke function'],
      [ofAgent, 'invoke agent'],
    ] as const) {
      const found = await spansOf(trace, [root, 'run', 'fetch', 'parse', 'save']);
      expect(found('run').parentSpanId).toBe(found(root).spanId);
      expect(found('fetch')).toMatchObject({ parentSpanId: found('run').spanId, status: 0 });
      expect(found('fetch').attributes.get('password')).toBe('[redacted]');
      expect(found('parse').parentSpanId).toBe(found('fetch').spanId);
      expect(found('save')).toMatchObject({ parentSpanId: found('run').spanId, status: 2 });
      expect(found('fetch').start).toBeGreaterThanOrEqual(found('run').start);
    }
  });

  it.each(['fail', 'missing'])('spans of a failed call are marked as failed: %s', async name => {
    const trace = newTrace();
    expect((await call(name, { traceparent: traceparentOf(trace) })).status).toBe(500);
    await vi.waitFor(() => {
      expect(collector.spans.find(span => span.traceId === trace && span.name === 'invoke function')?.status).toBe(2);
    }, 20_000);
  });

  it('spans without a trace of the client start a new one, whose id is in X-Trace-Id', async () => {
    for (const headers of [{}, { traceparent: 'nonsense' }]) {
      const url = `${bed.server.frontendUrl}/serverless/v1/functions/${URN('seen')}/invocations`;
      const answer = await fetch(url, { method: 'POST', body: '{}', headers });
      const trace = String(answer.headers.get('x-trace-id')).replaceAll('-', '');
      const found = await vi.waitFor(() => {
        const span = collector.spans.find(({ traceId, name }) => traceId === trace && name === 'invoke function');
        expect(span).toBeDefined();
        return span;
      }, 20_000);
      expect(found?.parentSpanId).toBe('');
      expect(String(await answer.json())).toContain(trace);
    }
  });

  it("GET /api/doctor checks the collector of spans in addition to the command's checks", async () => {
    const findings = (await bed.ask('GET', '/api/doctor')).body.findings as { name: string; text: string }[];
    const names = findings.map(({ name }) => name);
    for (const name of [
      'node',
      'database',
      'python',
      'java',
      'nodejs',
      'http',
      'process sandbox',
      'frontend',
      'traces',
    ]) {
      expect(names).toContain(name);
    }
    expect(findings.find(({ name }) => name === 'traces')?.text).toBe(`${collector.url}/v1/traces takes spans`);
  }, 180_000);

  it('spans are not created for a client that does not sample', async () => {
    const [unsampled, sampled] = [newTrace(), newTrace()];
    await call('seen', { traceparent: traceparentOf(unsampled, '00') });
    await call('seen', { traceparent: traceparentOf(sampled) });
    await spansOf(sampled, ['invoke function', 'run']);
    expect(collector.spans.filter(({ traceId }) => traceId === unsampled)).toEqual([]);
  });

  it('spans are lost while the collector rejects them, with one log message, and calls continue', async () => {
    const said = () => bed.server.output.match(/cannot send spans/g)?.length ?? 0;
    expect(said()).toBe(0);
    collector.answerWith(400);
    for (let round = 1; round <= 3; round++) {
      const before = collector.requests.length;
      expect((await call('seen')).status).toBe(200);
      await vi.waitFor(() => expect(collector.requests.length).toBeGreaterThan(before), 20_000);
    }
    await vi.waitFor(() => expect(said()).toBe(1), 20_000);
    collector.answerWith(200);
    const trace = newTrace();
    await call('seen', { traceparent: traceparentOf(trace) });
    await spansOf(trace, ['invoke function', 'run']);
    await vi.waitFor(() => expect(bed.server.output).toContain('spans are sent again'), 20_000);
    expect(said()).toBe(1);
  });
});

describe('the destination of spans', () => {
  it('the destination of spans can be configured by the setting, and the last spans are sent before the service ends', async () => {
    await using collector = await otlpReceiver();
    // The standard variable, which leads nowhere here, has a lower priority than the service's own.
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9',
      ROOKERY_TRACING_ENDPOINT: `${collector.url}/own/path`,
    };
    await using server = await Served.start({ env });
    const trace = newTrace();
    const answer = await fetch(`${server.frontendUrl}/api/agent`, {
      method: 'POST',
      body: JSON.stringify({
        ...{ namespace: 'e2e', name: 'none' },
        runtime_spec: { runtime: 'python3', codePath: '/nowhere', handler: 'a.b', rootfs: { imageurl: 'host' } },
        mounts: [{ source: '/nowhere/at/all', target: '/nowhere' }],
      }),
      headers: { traceparent: traceparentOf(trace) },
    });
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(answer.headers.get('x-trace-id')).toBe(trace);
    expect(await server.end()).toBe(0);
    expect(collector.spans).toMatchObject([{ traceId: trace, name: 'create agent', status: 2 }]);
    expect(collector.requests.map(({ path }) => path)).toEqual(['/own/path']);
  });
});

import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { Bed } from './agents.ts';
import { EventReader } from './event-reader.ts';

const HANDLERS = `
import os

def echo(event, context):
    return event

def end(event, context):
    os._exit(7)
`;

let bed: Bed;

beforeAll(async () => {
  bed = await Bed.start({ 'main.py': HANDLERS }, { args: [STOP_AGENTS] });
});
afterAll(() => bed?.[Symbol.asyncDispose]());

describe('events', () => {
  it('events report the whole life of an agent in order, to readers of its tenant only', async () => {
    using own = await EventReader.open(bed.server);
    using other = await EventReader.open(bed.server, '', { 'x-tenant-id': 'other' });
    const id = await bed.create('told', 'main.end');
    await bed.invoke(id);
    await vi.waitFor(() => expect(own.of('instance_id', id)).toEqual(['created', 'ready', 'failed']));
    expect(own.heard.at(-1)).toMatchObject({
      namespace: 'e2e',
      name: 'told',
      reason: expect.stringContaining('exit code 7'),
    });
    await bed.ask('POST', `/api/agent/${id}/restart`);
    await bed.ask('DELETE', `/api/agent/${id}`);
    await vi.waitFor(() =>
      expect(own.of('instance_id', id).slice(3)).toEqual(['restarting', 'ready', 'stopping', 'ended']),
    );
    expect(other.heard.map(({ type }) => type)).toEqual(['hello']);
  });

  it('events of a failed create give the reason', async () => {
    using reader = await EventReader.open(bed.server, '?types=failed,ended');
    const body = bed.createBody('nocode', 'main.echo', { rootfs: { imageurl: 'host', user: 'nobody-of-this-name' } });
    expect((await bed.ask('POST', '/api/agent', body)).status).toBe(500);
    await vi.waitFor(() => expect(reader.heard.slice(1).map(({ type }) => type)).toEqual(['failed', 'ended']));
    expect(reader.heard[1]?.reason).toContain('nobody-of-this-name');
  });

  it('a stream of events resumes after the last event of its reader, and reports when it cannot', async () => {
    const first = await EventReader.open(bed.server);
    const id = await bed.create('resumed', 'main.echo');
    await vi.waitFor(() => expect(first.of('instance_id', id)).toEqual(['created', 'ready']));
    const created = first.heard.find(event => event.instance_id === id);
    first[Symbol.dispose]();
    await bed.ask('DELETE', `/api/agent/${id}`);
    using again = await EventReader.open(bed.server, '', { 'last-event-id': String(created?.id) });
    await vi.waitFor(() => expect(again.of('instance_id', id)).toEqual(['ready', 'stopping', 'ended']));
    expect(again.heard[0]?.type).toBe('hello');
    using lost = await EventReader.open(bed.server, '', { 'last-event-id': 'of another server' });
    expect(lost.heard[0]?.type).toBe('reset');
  });

  it('events report the scaling of functions and the states of jobs', async () => {
    using reader = await EventReader.open(bed.server, '?types=ready,scaled,job');
    const registered = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        name: '0@svc@scaled',
        kind: 'faas',
        runtime: bed.runtime,
        cpu: 300,
        memory: 128,
        timeout: 10,
        handler: 'main.echo',
        storageType: 'local',
        codePath: bed.codeDir,
      },
      { meta: true },
    );
    const urn = String(registered.body.functionVersionUrn);
    await bed.ask('POST', `/serverless/v1/functions/${encodeURIComponent(urn)}/invocations`, { a: 1 });
    await vi.waitFor(() =>
      expect(reader.heard.filter(({ type }) => type === 'scaled').at(-1)).toMatchObject({
        function: urn,
        instances: 1,
        ready: 1,
      }),
    );
    await bed.ask('POST', '/api/jobs/', { entrypoint: 'true', submission_id: 'told' });
    await vi.waitFor(() => expect(reader.of('job', 'told')).toEqual(['PENDING', 'RUNNING', 'SUCCEEDED']), 20_000);
    await bed.ask('DELETE', '/api/jobs/told');
    await vi.waitFor(() => expect(reader.of('job', 'told').at(-1)).toBe('DELETED'));
  });

  it.each(['?types=nonsense', '?metrics=maybe'])('a query for events with %s is answered 400', async query => {
    expect((await bed.ask('GET', `/api/events${query}`)).status).toBe(400);
  });
});

describe('the history of metrics', () => {
  it('the history of metrics has the calls of an agent, of a function and in total, in a fixed number of steps', async () => {
    const id = await bed.create('counted', 'main.echo');
    for (let call = 0; call < 5; call++) await bed.invoke(id);
    const sumOf = async (query: string, points = 360): Promise<number> => {
      const { body } = await bed.ask('GET', `/api/metrics/history${query}`);
      const { calls = [] } = body.series as Record<string, (number | null)[]>;
      expect(calls).toHaveLength(points);
      return calls.reduce<number>((sum, count) => sum + (count ?? 0), 0);
    };
    await vi.waitFor(async () => expect(await sumOf(`?agent=${id}`)).toBe(5), { timeout: 30_000, interval: 500 });
    for (const [range, points] of Object.entries({ '15m': 90, '6h': 180, '24h': 288 })) {
      expect(await sumOf(`?agent=${id}&range=${range}`, points)).toBe(5);
    }
    expect(await sumOf('')).toBeGreaterThanOrEqual(5);
    const { body } = await bed.ask('GET', '/api/metrics/history');
    expect(Object.keys(body.series as object)).toEqual(
      expect.arrayContaining(['cpu_millis', 'memory_mb', 'service_memory_mb', 'agents', 'promised_memory_mb']),
    );
    const foreign = await bed.ask('GET', `/api/metrics/history?agent=${id}`, undefined, {
      headers: { 'x-tenant-id': 'other' },
    });
    expect(foreign.status).toBe(404);
  });

  it('the usage of all agents has the calls and memory of each, and nothing of other tenants', async () => {
    const id = await bed.create('used', 'main.echo');
    for (let call = 0; call < 3; call++) await bed.invoke(id);
    const usage = async (headers = {}) =>
      (await bed.ask('GET', '/api/metrics/usage?of=agents', undefined, { headers })).body.usage as Record<
        string,
        object
      >;
    await vi.waitFor(
      async () => {
        const number = expect.any(Number);
        const { [id]: used } = await usage();
        expect(used).toMatchObject({ calls: 3, errors: 0, p99_ms: number, memory_mb: number });
      },
      { timeout: 60_000, interval: 500 },
    );
    expect(await usage({ 'x-tenant-id': 'other' })).toEqual({});
    const { body } = await bed.ask('GET', `/api/metrics/history?agent=${id}`);
    const { memory_mb: memory = [] } = body.series as Record<string, (number | null)[]>;
    expect(memory.some(value => value !== null && value > 0)).toBe(true);
  }, 90_000);

  it.each(['', '?of=jobs'])('a query for the usage with “%s” is answered 400', async query => {
    expect((await bed.ask('GET', `/api/metrics/usage${query}`)).status).toBe(400);
  });

  it.each(['?range=1w', '?agent=a&function=b'])('a query for the history with %s is answered 400', async query => {
    expect((await bed.ask('GET', `/api/metrics/history${query}`)).status).toBe(400);
  });
});

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
import type { Served } from '../../scripts/served.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { ServedReplicas } from '../parts/served-replicas.ts';
import { describeWith } from '../probe.ts';
import { EventReader } from './event-reader.ts';

const WAIT = { timeout: 60_000, interval: 100 };
const URN = 'sn:cn:yrk:default:function:0@svc@told:$latest';

describeWith(['postgres'], 'events and numbers of three replicas', () => {
  let postgres: TestPostgres;
  let replicas: ServedReplicas;
  let directory: string;
  let runtime: string;

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-events-'));
    writeFileSync(join(directory, 'main.py'), 'def echo(event, context):\n    return event\n');
    runtime = `python${(await findInterpreters()).at(-1)?.version}`;
    postgres = await startPostgres();
    replicas = await ServedReplicas.start(await postgres.database(), 3);
    for (const replica of replicas.all) {
      await vi.waitFor(async () => expect((await ask(replica, 'GET', '/api/cluster')).nodes).toHaveLength(3), WAIT);
    }
  }, 180_000);
  afterAll(async () => {
    await replicas?.[Symbol.asyncDispose]();
    await postgres?.close();
    rmSync(directory, { recursive: true, force: true });
  }, 120_000);

  async function ask(replica: Served, method: string, path: string, body?: object) {
    const base =
      path.startsWith('/serverless/v1/functions') && body !== undefined ? replica.metaUrl : replica.frontendUrl;
    const answer = await fetch(`${path.endsWith('/invocations') ? replica.frontendUrl : base}${path}`, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return JSON.parse((await answer.text()) || '{}') as Record<string, never>;
  }

  test('each replica reports every event of all once, resumes after any id, and reports gaps', async () => {
    const [one, two, three] = replicas.all as [Served, Served, Served];
    const readers = await Promise.all(replicas.all.map(replica => EventReader.open(replica)));
    using foreign = await EventReader.open(three, '', { 'x-tenant-id': 'other' });
    const created = await ask(one, 'POST', '/api/agent', {
      ...{ namespace: 'e2e', name: 'told', mounts: [{ source: directory, target: '/code' }] },
      runtime_spec: { runtime, codePath: '/code', handler: 'main.echo', rootfs: { imageurl: 'host' } },
    });
    const id = String(created.instance_id);
    await ask(two, 'POST', '/api/jobs/', { entrypoint: 'true', submission_id: 'told' });
    await ask(three, 'POST', '/serverless/v1/functions', {
      ...{ name: '0@svc@told', kind: 'faas', runtime, cpu: 300, memory: 128, timeout: 10, handler: 'main.echo' },
      ...{ storageType: 'local', codePath: directory },
    });
    for (const replica of replicas.all) await ask(replica, 'POST', `/serverless/v1/functions/${URN}/invocations`, {});
    const scaled = { type: 'scaled', function: URN, instances: 1, ready: 1 };
    for (const reader of readers) {
      await vi.waitFor(() => {
        expect(reader.of('instance_id', id)).toEqual(['created', 'ready']);
        expect(reader.of('job', 'told')).toEqual(['PENDING', 'RUNNING', 'SUCCEEDED']);
        expect(reader.heard.findLast(({ type }) => type === 'scaled')).toMatchObject(scaled);
      }, WAIT);
    }
    // Every reader gets the same events with the same nodes, from any replica.
    await vi.waitFor(() => {
      const told = readers.map(({ heard }) => heard.slice(1).map(event => JSON.stringify({ ...event, id: '' })));
      expect(told[0]?.length).toBe(new Set(told[0]).size);
      expect(told[1]?.toSorted()).toEqual(told[0]?.toSorted());
      expect(told[2]?.toSorted()).toEqual(told[0]?.toSorted());
    }, WAIT);
    const { node_id: nodeId } = await ask(one, 'GET', '/api/cluster');
    expect(readers[2]?.heard.find(event => event.instance_id === id)).toMatchObject({ node: nodeId });

    const numbers = '/api/metrics/history?function=0@svc@told';
    const callsOf = async (replica: Served, query = '') => {
      const { series, nodes } = await ask(replica, 'GET', numbers + query);
      const { calls } = series as unknown as { calls: readonly (number | null)[] };
      return { nodes, calls: calls.reduce<number>((sum, count) => sum + (count ?? 0), 0) };
    };
    for (const replica of replicas.all) {
      await vi.waitFor(
        async () => expect(await callsOf(replica)).toMatchObject({ calls: 3, nodes: { length: 3 } }),
        WAIT,
      );
    }
    expect(await callsOf(two, `&node=${nodeId}`)).toMatchObject({ nodes: [nodeId] });
    expect(await ask(two, 'GET', `${numbers}&node=nobody`)).toMatchObject({ message: 'node not found: nobody' });

    const [atOne] = readers as [EventReader, EventReader, EventReader];
    const middle = Math.floor(atOne.heard.length / 2);
    const last = atOne.heard.at(-1)?.id as string;
    await one.end('SIGKILL');
    await ask(two, 'POST', '/api/jobs/', { entrypoint: 'true', submission_id: 'later' });
    using again = await EventReader.open(three, '', { 'last-event-id': last });
    await vi.waitFor(() => expect(again.of('job', 'later')).toEqual(['PENDING', 'RUNNING', 'SUCCEEDED']), WAIT);
    expect(again.heard[0]?.type).toBe('hello');
    expect(again.of('job', 'told')).toEqual([]);
    // The reader gets no event before its id again, and each later event once.
    using behind = await EventReader.open(two, '', { 'last-event-id': atOne.heard[middle]?.id as string });
    const rest = atOne.heard.slice(middle + 1).map(event => JSON.stringify({ ...event, id: '' }));
    await vi.waitFor(() => {
      const heard = behind.heard.map(event => JSON.stringify({ ...event, id: '' }));
      for (const event of rest) expect(heard.filter(each => each === event)).toHaveLength(1);
    }, WAIT);
    // The last events of the killed replica are lost, so readers get a reset.
    for (const reader of [again, behind]) {
      await vi.waitFor(() => expect(reader.heard.map(({ type }) => type)).toContain('reset'), WAIT);
    }
    expect(foreign.heard.map(({ type }) => type).filter(type => type !== 'reset')).toEqual(['hello']);
    for (const reader of readers) reader[Symbol.dispose]();
  }, 240_000);
});

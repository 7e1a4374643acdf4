import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { SILENT } from '../../telemetry/logger.ts';
import { KubernetesApi } from './cluster.ts';
import { type KubernetesObject, Watched } from './watched.ts';

const PATIENCE = { timeout: 20_000 };

/** Fake API server for one kind of object, on which tests provoke rare behaviour of real servers. */
class FakeApi {
  readonly objects = new Map<string, KubernetesObject>();
  version = 10;
  lists = 0;
  /** Handlers for the next list or watch requests, in place of the default answer. */
  readonly answers: ((request: IncomingMessage, response: ServerResponse) => void)[] = [];
  readonly watchesFrom: string[] = [];
  readonly #watches = new Set<ServerResponse>();
  readonly server: Server = createServer((request, response) => this.#answer(request, response));

  set(name: string, uid = name): void {
    const type = this.objects.has(name) ? 'MODIFIED' : 'ADDED';
    const object = { metadata: { name, uid, resourceVersion: String(++this.version) } };
    this.objects.set(name, object);
    this.send({ type, object });
  }

  drop(name: string): void {
    const object = { metadata: { ...this.objects.get(name)?.metadata, resourceVersion: String(++this.version) } };
    this.objects.delete(name);
    this.send({ type: 'DELETED', object });
  }

  send(event: object): void {
    for (const watch of this.#watches) watch.write(`${JSON.stringify(event)}\n`);
  }

  hangUp(): void {
    for (const watch of this.#watches) watch.destroy();
    this.#watches.clear();
  }

  get watches(): number {
    return this.#watches.size;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const other = this.answers.shift();
    if (other !== undefined) {
      other(request, response);
      return;
    }
    const query = new URL(request.url ?? '', 'http://x').searchParams;
    if (query.get('watch') !== 'true') {
      this.lists += 1;
      const list = { metadata: { resourceVersion: String(this.version) }, items: [...this.objects.values()] };
      response.end(JSON.stringify(list));
      return;
    }
    this.watchesFrom.push(query.get('resourceVersion') ?? '');
    response.writeHead(200).flushHeaders();
    this.#watches.add(response);
    response.once('close', () => this.#watches.delete(response));
  }
}

describe('Watched', () => {
  let api: FakeApi;
  let directory: string;
  let cluster: KubernetesApi;
  let watched: Watched<KubernetesObject>;
  const names = () => [...watched.all()].map(({ metadata }) => metadata?.name).sort();

  beforeEach(async () => {
    api = new FakeApi();
    api.server.listen(0, '127.0.0.1');
    await once(api.server, 'listening');
    directory = mkdtempSync(join(tmpdir(), 'rookery-watched-'));
    const kubeconfig = join(directory, 'kubeconfig');
    const { port } = api.server.address() as AddressInfo;
    writeFileSync(
      kubeconfig,
      JSON.stringify({
        clusters: [{ name: 'c', cluster: { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true } }],
        users: [{ name: 'u', user: { token: 't' } }],
        contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
        'current-context': 'x',
      }),
    );
    cluster = KubernetesApi.open({ kubeconfig, namespace: null, environment: {} });
    watched = new Watched({ cluster, path: '/things', labelSelector: 'a=b', noun: 'things', logger: SILENT });
    api.set('first');
  });

  afterEach(async () => {
    cluster.close();
    await watched.close();
    api.hangUp();
    api.server.close();
    api.server.closeAllConnections();
    rmSync(directory, { recursive: true, force: true });
  });

  const watching = () => vi.waitFor(() => expect(api.watches).toBe(1), PATIENCE);

  test('Watched lists objects once and then follows the watch', async () => {
    await watched.open();
    expect(names()).toEqual(['first']);
    await watching();
    api.set('second');
    api.drop('first');
    await vi.waitFor(() => expect(names()).toEqual(['second']), PATIENCE);
    expect(api.lists).toBe(1);
    expect(watched.problem).toBeNull();
  });

  test('Watched resumes a lost connection from the last version or bookmark without a new list', async () => {
    await watched.open();
    await watching();
    api.send({ type: 'BOOKMARK', object: { metadata: { resourceVersion: '77' } } });
    api.set('second');
    api.send({ type: 'BOOKMARK', object: { metadata: { resourceVersion: '99' } } });
    await vi.waitFor(() => expect(names()).toEqual(['first', 'second']), PATIENCE);
    api.hangUp();
    await watching();
    await vi.waitFor(() => expect(api.watchesFrom.at(-1)).toBe('99'), PATIENCE);
    expect(api.lists).toBe(1);
  });

  test.each([
    [
      'in an event',
      (_request: IncomingMessage, response: ServerResponse) => {
        response.end(
          `${JSON.stringify({ type: 'ERROR', object: { code: 410, reason: 'Expired', message: 'too old' } })}\n`,
        );
      },
    ],
    [
      'in an answer',
      (_request: IncomingMessage, response: ServerResponse) => {
        response.writeHead(410).end(JSON.stringify({ reason: 'Gone', message: 'too old' }));
      },
    ],
  ])(
    'Watched lists all objects again and notifies listeners when an expired version is reported %s',
    async (_how, answer) => {
      await watched.open();
      await watching();
      const heard: string[] = [];
      watched.subscribe((name, now, before) =>
        heard.push(`${name} ${now === undefined ? 'gone' : before ? 'changed' : 'new'}`),
      );
      api.answers.push(answer);
      // The watch reports neither of these changes.
      api.objects.delete('first');
      api.version += 1;
      api.objects.set('second', { metadata: { name: 'second', uid: 's', resourceVersion: String(api.version) } });
      api.hangUp();
      await vi.waitFor(() => expect(names()).toEqual(['second']), PATIENCE);
      expect(heard.sort()).toEqual(['first gone', 'second new']);
    },
  );

  test('Watched keeps an object that is created during a new list, and does not report a removal', async () => {
    await watched.open();
    await watching();
    const gone: string[] = [];
    watched.subscribe((name, now) => {
      if (now === undefined) gone.push(name);
    });
    api.answers.push(
      (_request, response) => void response.writeHead(410).end(JSON.stringify({ reason: 'Gone', message: 'too old' })),
      (_request, response) => {
        const list = { metadata: { resourceVersion: String(api.version) }, items: [...api.objects.values()] };
        // The object is newer than the version of the list, and the service learns it from a response.
        api.set('second');
        watched.learn(api.objects.get('second') as KubernetesObject);
        response.end(JSON.stringify(list));
      },
    );
    api.objects.delete('first');
    api.hangUp();
    await vi.waitFor(() => expect(names()).toEqual(['second']), PATIENCE);
    expect(gone).toEqual(['first']);
  });

  test('Watched keeps all objects while the API server is down, and reports the problem', async () => {
    await watched.open();
    await watching();
    for (let count = 0; count < 4; count++) api.answers.push((_request, response) => response.destroy());
    api.hangUp();
    await vi.waitFor(() => expect(watched.problem).toMatch(/did not watch things/), PATIENCE);
    expect(names()).toEqual(['first']);
    await vi.waitFor(() => expect(watched.problem).toBeNull(), PATIENCE);
  });

  test('Watched reports a replaced object of the same name as a removal and an addition', async () => {
    await watched.open();
    await watching();
    const heard: (string | undefined)[] = [];
    watched.subscribe((_name, now) => heard.push(now?.metadata?.uid));
    api.set('first', 'another');
    await vi.waitFor(() => expect(heard).toEqual([undefined, 'another']), PATIENCE);
  });

  test('Watched.learn stores an object at once, and older events do not replace the object', async () => {
    await watched.open();
    await watching();
    const learned = { metadata: { name: 'first', uid: 'first', resourceVersion: '50' } };
    watched.learn(learned);
    expect(watched.get('first')).toBe(learned);
    api.set('first');
    api.set('second');
    await vi.waitFor(() => expect(names()).toEqual(['first', 'second']), PATIENCE);
    expect(watched.get('first')).toBe(learned);
  });

  test('open fails with a readable error when the API server does not answer', async () => {
    api.answers.push(
      ...Array.from({ length: 50 }, () => (_r: IncomingMessage, response: ServerResponse) => response.destroy()),
    );
    await expect(watched.open(500)).rejects.toThrow(/the API server .* did not list things/);
    api.answers.length = 0;
    await watched.open();
    expect(names()).toEqual(['first']);
  });

  test('request fails with a ServiceError that quotes the refusal of the API server', async () => {
    api.answers.push((_request, response) =>
      response.writeHead(403).end(JSON.stringify({ reason: 'Forbidden', message: 'no' })),
    );
    await expect(cluster.request('read a thing', { path: '/things' })).rejects.toMatchObject({
      code: 'failed_precondition',
      message: 'the API server refused to read a thing: no',
    });
  });

  test('request retries a 429 response after the pause of its Retry-After header', async () => {
    api.answers.push((_request, response) => response.writeHead(429, { 'retry-after': '0' }).end('{}'));
    expect(await cluster.request('list things', { path: '/things' })).toMatchObject({ items: [{}] });
  });
});

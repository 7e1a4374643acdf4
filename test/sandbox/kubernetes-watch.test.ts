import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { describeExit } from '../../src/sandbox/driver.ts';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { KubernetesFixture } from './kubernetes-fixture.ts';

const TEST_MS = 240_000;
const PATIENCE = { timeout: 60_000, interval: 50 };
const TOO_OLD = {
  kind: 'Status',
  apiVersion: 'v1',
  status: 'Failure',
  reason: 'Expired',
  code: 410,
  message: 'too old resource version: 1 (2)',
};

/**
 * A proxy to the API server that expires watches, as the server does after it has dropped the versions they
 * continue from.
 */
class Forgetful {
  readonly #target: URL;
  readonly #authority: string;
  readonly #open = new Set<ServerResponse>();
  readonly #server: Server = createServer((asked, answer) => this.#pass(asked, answer));
  #isBlind = false;
  #forgotten: 'refuses' | 'ends' | null = null;
  /** Number of watches that were rejected as too old. */
  expired = 0;
  lists = 0;

  constructor({ config }: TestNamespace) {
    const cluster = config.getCurrentCluster();
    this.#target = new URL(cluster?.server ?? '');
    this.#authority = Buffer.from(cluster?.caData ?? '', 'base64').toString();
  }

  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Ends all watches and refuses new ones. */
  blind(): void {
    this.#isBlind = true;
    for (const answer of this.#open) answer.destroy();
  }

  /**
   * Accepts watches again and rejects the first of each kind as too old: with its status (`refuses`) or its
   * first event (`ends`).
   */
  forget(how: 'refuses' | 'ends'): void {
    this.#forgotten = how;
    this.#isBlind = false;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #pass(asked: IncomingMessage, answer: ServerResponse): void {
    const url = new URL(asked.url ?? '', this.#target);
    const isWatch = url.searchParams.get('watch') === 'true';
    if (isWatch && this.#isBlind) {
      answer.destroy();
      return;
    }
    if (isWatch && this.#forgotten !== null && !this.#hasListedSince(url)) {
      this.expired += 1;
      this.#known.add(url.pathname);
      if (this.#forgotten === 'refuses') answer.writeHead(410).end(JSON.stringify(TOO_OLD));
      else answer.writeHead(200).end(`${JSON.stringify({ type: 'ERROR', object: TOO_OLD })}\n`);
      return;
    }
    if (!isWatch && asked.method === 'GET') this.lists += 1;
    if (isWatch) {
      this.#open.add(answer);
      answer.once('close', () => this.#open.delete(answer));
    }
    const passed = request(
      url,
      { method: asked.method, headers: { ...asked.headers, host: url.host }, ca: this.#authority },
      got => {
        answer.writeHead(got.statusCode ?? 502, got.headers);
        got.pipe(answer);
        answer.once('close', () => got.destroy());
      },
    );
    passed.once('error', () => answer.destroy());
    asked.pipe(passed);
  }

  readonly #known = new Set<string>();

  #hasListedSince({ pathname }: URL): boolean {
    return this.#known.has(pathname);
  }
}

describeWith(['kubernetes'], 'with a cluster', () => {
  describe.each(['refuses', 'ends'] as const)('an expired watch (410, which %s it)', how => {
    let namespace: TestNamespace;
    let fixture: KubernetesFixture;
    let api: Forgetful;
    let directory: string;

    beforeAll(async () => {
      namespace = await kubernetesNamespace();
      api = new Forgetful(namespace);
      const server = await api.listen();
      directory = mkdtempSync(join(tmpdir(), 'rookery-forgetful-'));
      const kubeconfig = join(directory, 'kubeconfig');
      const config = JSON.parse(namespace.config.exportConfig()) as {
        clusters: { cluster: Record<string, unknown> }[];
      };
      for (const { cluster } of config.clusters) {
        cluster.server = server;
        cluster['insecure-skip-tls-verify'] = true;
        delete cluster['certificate-authority-data'];
      }
      writeFileSync(kubeconfig, JSON.stringify(config));
      fixture = new KubernetesFixture(namespace, await kubernetesImage(), { kubeconfig });
    }, KUBERNETES_START_MS);

    afterAll(async () => {
      await fixture?.dispose();
      api?.close();
      await namespace?.close();
      if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
    }, TEST_MS);

    test('the driver lists again, notices ended and new pods, and keeps running ones', {
      timeout: TEST_MS,
    }, async () => {
      const driver = fixture.driver();
      const start = async () => await driver.start(fixture.spec(), AbortSignal.timeout(120_000));
      const [stays, goes] = await Promise.all([start(), start()]);
      let hasEnded = false;
      const staying = driver.wait(stays.handle).finally(() => {
        hasEnded = true;
      });
      const going = driver.wait(goes.handle);
      expect((await driver.list()).map(({ running }) => running)).toEqual([true, true]);

      api.blind();
      const at = { namespace: namespace.name, gracePeriodSeconds: 0 };
      await namespace.core.deleteNamespacedPod({ ...at, name: goes.facts.sandboxId });
      await vi.waitFor(async () => {
        const { items } = await namespace.core.listNamespacedPod({ namespace: namespace.name });
        expect(items.map(({ metadata }) => metadata?.name)).toEqual([stays.facts.sandboxId]);
      }, PATIENCE);
      const lists = api.lists;
      api.forget(how);

      // One watch for pods and one for pools expired. Each then lists once.
      await vi.waitFor(() => expect(api.expired).toBe(2), PATIENCE);
      await vi.waitFor(async () => expect(await driver.inspect(goes.handle)).toEqual({ state: 'gone' }), PATIENCE);
      expect(describeExit(await going)).not.toBe('');
      expect(await driver.inspect(stays.handle)).toEqual({ state: 'running' });
      expect((await driver.list()).map(({ instanceId }) => instanceId)).toEqual([stays.handle.instanceId]);
      const fresh = await start();
      expect(await driver.inspect(fresh.handle)).toEqual({ state: 'running' });
      expect(api.lists - lists).toBeLessThan(8);
      expect(hasEnded).toBe(false);
      await driver.remove(fresh.handle);
      await driver.remove(stays.handle);
      await staying;
      expect((await namespace.core.listNamespacedPod({ namespace: namespace.name })).items).toEqual([]);
    });
  });
});

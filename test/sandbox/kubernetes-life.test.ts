import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type { PoolSpec } from '../../src/core/pool.ts';
import { Channel } from '../../src/runtime/channel.ts';
import type { SandboxDriver, SandboxHandle, SandboxSpec } from '../../src/sandbox/driver.ts';
import { describeExit } from '../../src/sandbox/driver.ts';
import type { KubernetesDriver } from '../../src/sandbox/kubernetes/driver.ts';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { call, initOf } from '../suites/sandbox-driver.ts';
import { CODE } from './driver-fixture.ts';
import { KubernetesFixture } from './kubernetes-fixture.ts';

const TEST_MS = 120_000;
const PATIENCE = { timeout: 60_000, interval: 100 };

const POOL: PoolSpec = {
  ...{ id: 'fast', group: 'default', reuse: true, size: 1, max_size: 1, scalable: false },
  ...{ image: '', init_image: '', labels: { speed: 'high' }, environment: { WORD: 'x' } },
  volumes: JSON.stringify([{ name: 'scratch', emptyDir: {} }]),
  volume_mounts: JSON.stringify([{ name: 'scratch', mountPath: '/scratch' }]),
  resources: { requests: { cpu: '100m', memory: '128Mi' }, limits: { cpu: '100m', memory: '128Mi' } },
  ...{ affinities: '', node_selector: { 'kubernetes.io/os': 'linux' }, runtime_class_name: '' },
  tolerations: JSON.stringify([{ key: 'sandboxes', operator: 'Exists' }]),
  topology_spread_constraints: JSON.stringify([
    { maxSkew: 1, topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'ScheduleAnyway' },
  ]),
  ...{ horizontal_pod_autoscaler_spec: '', pod_pending_duration_threshold: 120 },
  idle_recycle_time: { reserved: 0, scaled: 0 },
};

/** A proxy to the API server that the test can shut. */
class Door {
  readonly #open = new Set<Socket>();
  readonly #server: Server;
  #isShut = false;

  constructor(host: string, port: number) {
    this.#server = createServer(caller => {
      if (this.#isShut) return caller.destroy();
      const api = connect({ host, port });
      for (const socket of [caller, api]) {
        this.#open.add(socket);
        socket.on('error', () => undefined).once('close', () => this.#open.delete(socket));
      }
      caller.pipe(api).pipe(caller);
      caller.once('close', () => api.destroy());
      api.once('close', () => caller.destroy());
    });
  }

  async listen(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  shut(): void {
    this.#isShut = true;
    for (const socket of this.#open) socket.destroy();
  }

  open(): void {
    this.#isShut = false;
  }

  close(): void {
    this.shut();
    this.#server.close();
  }
}

describeWith(['kubernetes'], 'with a cluster', () => {
  describe('the life of a pod', { timeout: TEST_MS }, () => {
    let namespace: TestNamespace;
    let image: string;
    let fixture: KubernetesFixture;
    let driver: SandboxDriver;
    const channels: Channel[] = [];

    beforeAll(async () => {
      namespace = await kubernetesNamespace();
      image = await kubernetesImage();
      fixture = new KubernetesFixture(namespace, image);
      driver = fixture.driver();
    }, KUBERNETES_START_MS);

    afterEach(async () => {
      for (const channel of channels.splice(0)) channel.close();
      for (const { handle } of await driver.list()) await driver.remove(handle);
    });

    afterAll(async () => {
      await fixture?.dispose();
      await namespace?.close();
    });

    const podNames = async () =>
      (await namespace.core.listNamespacedPod({ namespace: namespace.name })).items.map(
        ({ metadata }) => metadata?.name,
      );

    const start = async (changes: Partial<SandboxSpec> = {}, under: SandboxDriver = driver, timeoutMs = 60_000) => {
      const spec = fixture.spec(changes);
      return { spec, ...(await under.start(spec, AbortSignal.timeout(timeoutMs))) };
    };

    const entryOf = async (spec: SandboxSpec, handle: SandboxHandle, entry: string, codePath = '/code') => {
      const init = initOf(spec, codePath, entry);
      const channel = await Channel.open(handle.endpoint, spec.secret, AbortSignal.timeout(20_000));
      channels.push(channel);
      const loaded = await channel.initialize(init, AbortSignal.timeout(20_000));
      if (!loaded.ok) throw new Error(loaded.error.message);
      return (event: object) => call(channel, event);
    };

    const callIn = async (spec: SandboxSpec, handle: SandboxHandle, entry: string, event: object) =>
      await (await entryOf(spec, handle, entry))(event);

    test('an image that cannot be pulled fails the start with the message of the cluster, and leaves no pod', async () => {
      const rootfs = { type: 'image', imageUrl: 'no-registry.invalid/nothing:1', user: '' } as const;
      await expect(start({ rootfs })).rejects.toThrow(/^the pod did not start: ImagePullBackOff: /);
      expect(await podNames()).toEqual([]);
    });

    test('an invalid image name fails the start at once', async () => {
      const rootfs = { type: 'image', imageUrl: 'NO IMAGE', user: '' } as const;
      await expect(start({ rootfs })).rejects.toThrow(/InvalidImageName/);
      expect(await podNames()).toEqual([]);
    });

    test('a pod that fits on no node fails at the end of its budget with the message of the scheduler', async () => {
      await expect(start({ memoryMb: 900_000_000 }, driver, 3_000)).rejects.toThrow(
        /^the pod did not start in time: Unschedulable: .*memory/,
      );
      expect(await podNames()).toEqual([]);
    });

    test('a pod has the promised labels, limits and confinement, and no token', async () => {
      const asSet = fixture.driver({
        pod: {
          ...{ nodeSelector: { 'kubernetes.io/os': 'linux' }, runtimeClass: null },
          tolerations: [{ key: 'sandboxes', operator: 'Exists', effect: 'NoSchedule' }],
          volumes: [{ name: 'scratch', emptyDir: {} }],
          volumeMounts: [{ name: 'scratch', mountPath: '/scratch' }],
        },
      });
      const asked = { cpuMillis: 250, memoryMb: 128, ports: [{ protocol: 'tcp', port: 8080 } as const] };
      const { facts, spec, handle } = await start(asked, asSet);
      const write = { argv: ['touch', '/scratch/a'], workingDir: '', env: {}, stdin: '', timeoutMs: 20_000 };
      const written = asSet.exec(handle, { ...write, maxOutputBytes: 1000 }, AbortSignal.timeout(20_000));
      expect(await written).toMatchObject({ returncode: 0 });
      const pod = await namespace.core.readNamespacedPod({ namespace: namespace.name, name: facts.sandboxId });
      expect(pod.metadata?.labels).toEqual({
        'rookery.io/installation': fixture.installationId,
        'rookery.io/instance': spec.instanceId,
        'rookery.io/node': 'node-1',
      });
      const [container] = pod.spec?.containers ?? [];
      expect(container?.resources).toEqual({
        requests: { cpu: '250m', memory: '128Mi' },
        limits: { cpu: '250m', memory: '128Mi' },
      });
      expect(container?.securityContext).toMatchObject({
        allowPrivilegeEscalation: false,
        capabilities: { drop: ['ALL'] },
        readOnlyRootFilesystem: true,
        runAsNonRoot: true,
      });
      expect(pod.spec).toMatchObject({ automountServiceAccountToken: false, enableServiceLinks: false });
      // The pod has the operator's settings for pods of their own.
      expect(pod.spec).toMatchObject({ nodeSelector: { 'kubernetes.io/os': 'linux' } });
      expect(pod.spec?.tolerations).toContainEqual({ key: 'sandboxes', operator: 'Exists', effect: 'NoSchedule' });
      // The start order carries the secret, so that a user who may read pods cannot see it.
      expect(JSON.stringify(pod)).not.toContain(spec.secret);
      expect(facts.placement).toEqual({
        nodeName: pod.spec?.nodeName,
        poolId: null,
        whyNoPool: expect.stringMatching(/pool/),
      });
      expect(facts.nodeIp).toBe(pod.status?.hostIP);
      expect(facts.portMappings).toEqual([
        { protocol: 'tcp', containerPort: 8080, hostIp: facts.sandboxIp, hostPort: 8080 },
      ]);
    });

    test('a pod that is deleted from outside ends its instance, with a reason', async () => {
      const { handle, facts } = await start();
      const waiting = driver.wait(handle);
      await namespace.core.deleteNamespacedPod({ namespace: namespace.name, name: facts.sandboxId });
      await waiting;
      await vi.waitFor(async () => expect(await driver.inspect(handle)).toEqual({ state: 'gone' }), PATIENCE);
    });

    test('a pod that ended by itself keeps its logs until it is removed', async () => {
      const { handle, spec, facts } = await start();
      await callIn(spec, handle, 'behaviours.print_and_exit', { to: 3, code: 7 }).catch(() => undefined);
      expect(describeExit(await driver.wait(handle))).toBe('exit code 7');
      await vi.waitFor(async () => {
        const pod = await namespace.core.readNamespacedPod({ namespace: namespace.name, name: facts.sandboxId });
        expect(pod.status?.phase).toBe('Failed');
      }, PATIENCE);
      let text = '';
      const request = { tail: null, sinceMs: null, follow: false };
      for await (const chunk of driver.logs(handle, request, new AbortController().signal)) text += chunk;
      expect(text).toContain('line 1\nline 2\nline 3\n');
      await driver.remove(handle);
      expect(await podNames()).toEqual([]);
    });

    test('a start replaces the last pod of its instance when that pod still exists', async () => {
      const first = await start();
      await driver.stop(first.handle, 1_000);
      const second = await start({ instanceId: first.spec.instanceId });
      expect(second.handle.data.uid).not.toBe(first.handle.data.uid);
      expect(await driver.inspect(first.handle)).toEqual({ state: 'gone' });
      expect(await driver.inspect(second.handle)).toEqual({ state: 'running' });
    });

    test('an instance claims a pod of its labelled pool, sees nothing of the previous instance, and releases the pod to the pool, or to its replacement', async () => {
      const pools = (driver as KubernetesDriver).pools;
      await pools.open();
      await pools.apply(POOL, 1);
      await pools.apply({ ...POOL, id: 'once', reuse: false, labels: { speed: 'once' } }, 1);
      const at = { namespace: namespace.name };
      const membersOf = async (pool: string) => {
        const labelSelector = `rookery.io/pool=${pool},rookery.io/member=true`;
        return (await namespace.core.listNamespacedPod({ ...at, labelSelector })).items;
      };
      const haveOneReady = (...ids: readonly string[]) =>
        vi.waitFor(async () => {
          for (const id of ids) {
            const ready = (await membersOf(id)).map(({ status }) => status?.containerStatuses?.[0]?.ready);
            expect([id, ready]).toEqual([id, [true]]);
          }
        }, PATIENCE);
      await haveOneReady('fast', 'once');
      const claimed = {
        mounts: [],
        platformMounts: [{ source: CODE, target: '/opt/function/code', readonly: true }],
        pool: { id: '', labels: ['speed=high'] },
      };
      const inPod = async ({ spec, handle }: Awaited<ReturnType<typeof start>>) => {
        const call = await entryOf(spec, handle, 'behaviours.attempt', '/opt/function/code');
        return (code: string) => call({ code });
      };
      const logsOf = async (handle: SandboxHandle) => {
        let text = '';
        const request = { tail: null, sinceMs: null, follow: false };
        for await (const chunk of driver.logs(handle, request, new AbortController().signal)) text += chunk;
        return text;
      };
      const first = await start({ ...claimed, env: { ...fixture.spec().env, ONLY_OF: 'the first' } });
      expect(first.facts.placement).toMatchObject({ poolId: 'fast', whyNoPool: '' });
      const litter = await inPod(first);
      expect(await litter("os.environ['ONLY_OF']")).toBe('the first');
      await litter("open('/tmp/left', 'w').close()");
      await litter("open('/scratch/left', 'w').close()");
      await litter("subprocess.Popen(['sleep', '1000'], start_new_session=True)");
      await litter("print('line 1', flush=True)");
      await vi.waitFor(async () => expect(await logsOf(first.handle)).toContain('line 1\n'), PATIENCE);
      await driver.remove(first.handle);
      expect(await driver.inspect(first.handle)).toEqual({ state: 'gone' });

      const second = await start(claimed);
      expect(second.facts.sandboxId).toBe(first.facts.sandboxId);
      const look = await inPod(second);
      expect(await look("os.listdir('/tmp') + os.listdir('/scratch')")).toBe('[]');
      expect(
        await look(
          "'sleep' in [open('/proc/%s/comm' % pid).read().strip() for pid in os.listdir('/proc') if pid.isdigit()]",
        ),
      ).toBe('False');
      expect(await look("[name for name in os.environ if name.startswith('KUBERNETES_') or name == 'ONLY_OF']")).toBe(
        '[]',
      );
      expect(await look("os.path.exists('/var/run/secrets/kubernetes.io')")).toBe('False');
      await look('os._exit(4)').catch(() => undefined);
      // The pod keeps running, and the driver still notices the end of the instance.
      expect(describeExit(await driver.wait(second.handle))).toBe('exit code 4');
      expect(await logsOf(second.handle)).not.toContain('line 1');
      await driver.remove(second.handle);

      const once = await start({ ...claimed, pool: { id: 'once', labels: [] } });
      expect(once.facts.placement).toMatchObject({ poolId: 'once', whyNoPool: '' });
      const namesOf = async (pool: string) => (await membersOf(pool)).map(({ metadata }) => metadata?.name);
      expect(await namesOf('once')).not.toContain(once.facts.sandboxId);
      await haveOneReady('fast', 'once');
      expect(await driver.inspect(once.handle)).toEqual({ state: 'running' });
      await driver.remove(once.handle);
      await vi.waitFor(async () => expect(await podNames()).not.toContain(once.facts.sandboxId), PATIENCE);

      for (const id of ['fast', 'once']) await pools.disband(id);
      // In the product the controller deletes these pods.
      await namespace.core.deleteCollectionNamespacedPod({ namespace: namespace.name, gracePeriodSeconds: 0 });
      await vi.waitFor(async () => expect(await podNames()).toEqual([]), PATIENCE);
    });

    test('pods serve while the API server is down, and a handle whose state cannot be read is unknown', async () => {
      const server = new URL(namespace.config.getCurrentCluster()?.server ?? '');
      const door = new Door(server.hostname, Number(server.port));
      const directory = mkdtempSync(join(tmpdir(), 'rookery-door-'));
      try {
        const port = await door.listen();
        const kubeconfig = join(directory, 'kubeconfig');
        const text = namespace.config.exportConfig();
        const config = JSON.parse(text) as { clusters: { cluster: Record<string, string> }[] };
        for (const { cluster } of config.clusters) cluster.server = `https://127.0.0.1:${port}`;
        writeFileSync(kubeconfig, JSON.stringify(config));
        const behind = fixture.driver({ kubeconfig });
        const { handle, spec } = await start({}, behind);
        const waiting = behind.wait(handle);
        let hasEnded = false;
        void waiting.then(
          () => {
            hasEnded = true;
          },
          () => undefined,
        );
        door.shut();
        // The manager in the pod reports the state while the API server is unreachable.
        expect(await behind.inspect(handle)).toEqual({ state: 'running' });
        expect(await callIn(spec, handle, 'behaviours.echo', { a: 1 })).toEqual({ a: 1 });
        await vi.waitFor(async () => await expect(behind.list()).rejects.toThrow(/API server/), PATIENCE);
        // A new driver knows nothing yet, as after a restart.
        const fresh = fixture.driver({ kubeconfig });
        expect(await fresh.inspect(handle)).toMatchObject({
          state: 'unknown',
          reason: expect.stringMatching(/API server/),
        });
        expect(hasEnded).toBe(false);
        door.open();
        await vi.waitFor(async () => expect(await behind.list()).toHaveLength(1), PATIENCE);
        await behind.remove(handle);
        await waiting;
      } finally {
        door.close();
        rmSync(directory, { recursive: true, force: true });
      }
    });
  });
});

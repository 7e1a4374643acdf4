import type { FrontendOptions } from '../../src/api/frontend-app.ts';
import { Forwarder } from '../../src/cluster/forwarder.ts';
import { ClusterListener } from '../../src/cluster/listener.ts';
import { Peers } from '../../src/cluster/peers.ts';
import { type ClusterIdentity, clusterTls } from '../../src/cluster/tls.ts';
import { unavailable } from '../../src/core/error.ts';
import type { Locator, PeerAddress, Target } from '../../src/http/forwarding.ts';
import type { Thing } from '../../src/http/route-config.ts';
import { type TestFrontend, testFrontend } from './frontend.ts';

/** Time for which the forwarder retries a request that no replica accepts. */
const WAIT_MS = 300;

export const SECRET: ClusterIdentity = { kind: 'secret', secret: Buffer.alloc(32, 'a secret of the cluster') };

/** A locator whose answers the test sets. */
export class FakeLocator implements Locator {
  readonly asked: { thing: Thing; key: string; isAnew: boolean }[] = [];
  /** The replica that owns every resource; null: this replica. */
  target: Target = null;
  /** The result of `refresh`; undefined: `target`; null: `refresh` fails with unavailable. */
  refreshed: Target | undefined;
  /** True: `locate` returns a promise, as after a look-up in the database. */
  isSlow = false;

  locate(thing: Thing, key: string): Target | Promise<Target> {
    this.asked.push({ thing, key, isAnew: false });
    return this.isSlow ? Promise.resolve(this.target) : this.target;
  }

  async refresh(thing: Thing, key: string): Promise<PeerAddress> {
    this.asked.push({ thing, key, isAnew: true });
    const found = this.refreshed ?? this.target;
    if (found === null) throw unavailable('no replica has it');
    return found;
  }
}

/** The network part of a replica: a listening frontend and a cluster listener. */
export interface TestReplica extends TestFrontend {
  readonly nodeId: string;
  readonly url: string;
  readonly locator: FakeLocator;
  readonly peers: Peers;
  readonly listener: ClusterListener;
  readonly results: string[];
  /** Node id and cluster address under which other replicas reach this replica. */
  readonly target: { readonly nodeId: string; readonly address: string };
}

export async function testReplica(
  nodeId: string,
  options: Partial<FrontendOptions> & { readonly identity?: ClusterIdentity } = {},
): Promise<TestReplica> {
  const { identity = SECRET, ...frontendOptions } = options;
  const locator = new FakeLocator();
  const tls = clusterTls(identity, nodeId);
  const peers = new Peers(tls.client);
  const results: string[] = [];
  const metrics = { forwarded: (result: string) => void results.push(result), hop: () => undefined };
  const frontend = testFrontend({
    ...frontendOptions,
    forwarding: { locator, sender: new Forwarder(peers, metrics, WAIT_MS) },
  });
  const url = await frontend.listen();
  const listener = new ClusterListener({
    tls: tls.server,
    nodeId,
    version: '0.0.0',
    entry: frontend.app,
    maxConnections: 1000,
    log: {
      warn: (fields, text) => void frontend.lines.push({ level: 'warn', fields: fields as LogFields, text }),
    },
  });
  const port = await listener.listen('127.0.0.1', 0);
  return Object.assign(frontend, {
    nodeId,
    url,
    locator,
    peers,
    listener,
    results,
    target: { nodeId, address: `127.0.0.1:${port}` },
    [Symbol.asyncDispose]: async () => {
      peers.close();
      await Promise.all([listener.close(), frontend.app.close()]);
    },
  });
}

type LogFields = Readonly<Record<string, unknown>>;

/** Two replicas: `owner` has every resource, and `first` forwards everything to `owner`. */
export class TestCluster implements AsyncDisposable {
  readonly owner: TestReplica;
  readonly first: TestReplica;

  private constructor(owner: TestReplica, first: TestReplica) {
    this.owner = owner;
    this.first = first;
  }

  static async start(options: Parameters<typeof testReplica>[1] = {}): Promise<TestCluster> {
    const cluster = new TestCluster(await testReplica('node-b', options), await testReplica('node-a', options));
    cluster.first.locator.target = cluster.owner.target;
    return cluster;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.first[Symbol.asyncDispose]();
    await this.owner[Symbol.asyncDispose]();
  }
}

import type { IncomingMessage } from 'node:http';
import { failedPrecondition, unavailable } from '../core/error.ts';
import { FORWARD_WAIT_MS, type ForwardingOptions } from '../http/forwarding.ts';
import { pause } from '../lib/backoff.ts';
import { Rounds } from '../lib/rounds.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import type { ClusterLog, LivingNode } from './contract.ts';
import { Forwarder, type ForwardMetrics } from './forwarder.ts';
import { ClusterListener, type ForwardedEntry, type PeerAnswers } from './listener.ts';
import { NodeLocator } from './locator.ts';
import { LostNodes, type LostNodesOptions } from './lost-nodes.ts';
import { OwnedShards, type ShardListener } from './owned-shards.ts';
import { Peers, splitAddress } from './peers.ts';
import { Replica } from './replicas.ts';
import { type ClusterIdentity, clusterTls } from './tls.ts';

export interface ClusterNodeOptions {
  /** Of the PostgreSQL, whose tables are up to date. */
  readonly url: string;
  /** Past a pooler of transactions that `url` leads to. */
  readonly listenUrl: string | null;
  readonly nodeId: string;
  readonly version: string;
  readonly roles: readonly string[];
  /** Null: this is the only replica. */
  readonly connections: {
    /** `host:port` */
    readonly listen: string;
    /** Where the others find it, `host:port`. */
    readonly advertise: string;
    readonly identity: ClusterIdentity;
  } | null;
  /** How long the calls of a shard may go on when it is handed over. */
  readonly releaseMs: number;
  /** How long a dead node is waited for before what it had is given up. */
  readonly nodeLostMs: number;
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly log: ClusterLog;
}

/** What the locator asks of the parts that own things. */
export interface Placed {
  /** Whether the instance takes calls in this process. */
  readonly isLive: (instanceId: string) => boolean;
  readonly nodeOfInstance: (id: string) => Promise<string | null>;
  readonly nodeOfJob: (tenant: string, id: string, what: 'log' | 'stop') => Promise<string | null>;
}

const MAX_PEER_CONNECTIONS = 10_000;
const UNDER_WAY_MS = 500;
/** More than replicas take to join again, one after the other. */
const REJOIN_MS = 5_000;
const LOOK_MS = 1_000;
/** What replicas ask of each other for themselves is there at once, or not at all. */
const ASK_MS = 2_000;

/** This process as one of several replicas over one PostgreSQL: its life among them, what it owns, and its connections to the others. */
export class ClusterNode {
  readonly replica: Replica;
  /** The functions that are served here. */
  readonly shards: OwnedShards;
  /** Durable writes that other replicas hear of. */
  readonly writes: DurableWrites;
  readonly #options: ClusterNodeOptions;
  readonly #lost: LostNodes;
  readonly #looks: Rounds;
  #peers: Peers | undefined;
  /** Addresses of replicas that lived, and since when they do not; null: they do. */
  readonly #goneMs = new Map<string, number | null>();
  #listener: ClusterListener | undefined;
  #onGivenUp: LostNodesOptions['onGivenUp'] = () => undefined;

  private constructor(options: ClusterNodeOptions, replica: Replica) {
    this.#options = options;
    this.replica = replica;
    this.shards = new OwnedShards(replica.shards, options.releaseMs);
    this.writes = replica.feed.publishing(options.writes);
    this.#looks = new Rounds(LOOK_MS, async () => this.#dropTheDead());
    this.#lost = new LostNodes({
      ...options,
      lostMs: options.nodeLostMs,
      onGivenUp: all => this.#onGivenUp(all),
      shards: replica.shards,
      membership: replica.membership,
      writes: this.writes,
    });
  }

  /**
   * Joins the others: from now on writes can be fenced. Nothing is owned yet. Fails with `unavailable` when PostgreSQL does not answer, and with
   * `failed_precondition` when another process lives as this node, or there are others and this one has no way to connect with them.
   */
  static async join(options: ClusterNodeOptions): Promise<ClusterNode> {
    const { url, listenUrl, nodeId: id, version, roles, connections, log } = options;
    const advertise = connections?.advertise ?? '';
    const replica = await Replica.open({ url, listenUrl, self: { id, advertise, roles, version }, log });
    try {
      const twin = await replica.membership.twin();
      if (twin !== null) throw twinLives(twin);
      await replica.join();
      const alone = alonePerforce(id, replica.membership.living());
      if (alone !== undefined) throw alone;
      const node = new ClusterNode(options, replica);
      await node.#lost.start();
      node.#looks.start();
      return node;
    } catch (error) {
      await replica.leave();
      throw error;
    }
  }

  get openConnections(): number {
    return this.#peers?.openConnections ?? 0;
  }

  /** `ClusterGauges` of `telemetry/metrics.ts`. */
  gauges() {
    const { membership, shards, feed } = this.replica;
    return {
      nodes: membership.living().length,
      leases: shards.count(),
      leaseChanges: shards.changes,
      heartbeatAgeMs: membership.heartbeatAgeMs(),
      feedBehindMs: feed.behindMs(),
    };
  }

  /** Whether nobody waits for a dead node any more. */
  isLost(nodeId: string): boolean {
    return this.#lost.isLost(nodeId);
  }

  /** Those that live and can be reached, without this one. */
  others(): readonly { readonly id: string; readonly address: string }[] {
    const living = this.replica.membership.living();
    return living
      .filter(({ id, advertise }) => id !== this.#options.nodeId && advertise !== '')
      .map(({ id, advertise }) => ({ id, address: advertise }));
  }

  /** What another replica answers at this path of its cluster listener (`PeerAnswers`), as it comes. Fails with `unavailable`. */
  async open(address: string, path: string): Promise<IncomingMessage> {
    return await this.#reachable().open(address, path, ASK_MS);
  }

  /** The same of JSON that is there soon. */
  async read(address: string, path: string): Promise<unknown> {
    return await this.#reachable().read(address, path, ASK_MS);
  }

  #reachable(): Peers {
    if (this.#peers === undefined) throw unavailable('this replica has no connections with others');
    return this.#peers;
  }

  /** How requests get to the replica that they are for; null when there are no others. */
  forwarding(placed: Placed, metrics: ForwardMetrics): ForwardingOptions | null {
    const { connections, nodeId, roles } = this.#options;
    if (connections === null) return null;
    const { membership, shards } = this.replica;
    this.#peers = new Peers(clusterTls(connections.identity, nodeId).client);
    const locator = new NodeLocator({
      ...placed,
      isWorker: roles.includes('worker'),
      self: { nodeId, address: connections.advertise },
      membership,
      shards,
      isServed: shard => this.shards.held(shard) !== null,
      isLost: id => this.isLost(id),
      waitMs: FORWARD_WAIT_MS,
    });
    return { locator, sender: new Forwarder(this.#peers, metrics) };
  }

  /**
   * Everything here is ready: requests of other replicas are served by `entry`, and leases are taken; `listeners` hear of shards, `on.otherLease`
   * is called when another lease comes or goes, `on.givenUp` when what a lost node had was given up or is this one's now; `on.answer` answers what
   * other replicas ask for themselves.
   */
  async serve(
    entry: ForwardedEntry,
    listeners: readonly ShardListener[],
    on: {
      readonly otherLease: () => void;
      readonly givenUp: LostNodesOptions['onGivenUp'];
      readonly answer: PeerAnswers;
    },
  ): Promise<void> {
    this.#onGivenUp = on.givenUp;
    const { connections, nodeId, version, log, roles } = this.#options;
    if (connections !== null) {
      this.#listener = new ClusterListener({
        tls: clusterTls(connections.identity, nodeId).server,
        nodeId,
        version,
        entry,
        answer: on.answer,
        maxConnections: MAX_PEER_CONNECTIONS,
        log,
      });
      const { host, port } = splitAddress(connections.listen);
      await this.#listener.listen(host, port);
    }
    if (!roles.includes('worker')) return;
    this.shards.tell(listeners, on.otherLease);
    this.replica.own(this.shards);
  }

  /**
   * Goes on for `drainMs`, so that load balancers hear that it is about to end; hands everything over that others can own; then lets what they
   * forwarded here end, and takes no more of it. The only replica has nobody to wait for.
   */
  async retire(drainMs: number): Promise<void> {
    if (this.#listener !== undefined) await pause(drainMs);
    await this.replica.retire();
    if (this.#listener === undefined) return;
    this.#listener.drain();
    // Requests that left before the others knew arrive, and go back.
    await pause(UNDER_WAY_MS);
  }

  /** The end of this node for the others. Nothing can be fenced any more. */
  async close(): Promise<void> {
    this.#listener?.destroy();
    await this.#looks.close();
    this.#peers?.close();
    await this.#lost.close();
    await this.replica.leave();
  }

  /**
   * A machine that vanishes closes no connection: requests to it fail some time after its place among the replicas has expired.
   * Not at once: after the database was away, each is seen as gone until it has joined again, and goes on with its calls.
   */
  #dropTheDead(): void {
    const nowMs = performance.now();
    const living = new Set(this.replica.membership.living().map(({ advertise }) => advertise));
    for (const address of living) this.#goneMs.set(address, null);
    for (const [address, goneMs] of this.#goneMs) {
      if (living.has(address)) continue;
      if (goneMs === null) this.#goneMs.set(address, nowMs);
      else if (nowMs - goneMs > REJOIN_MS) {
        this.#goneMs.delete(address);
        this.#peers?.drop(address);
      }
    }
  }
}

/** Two processes with one identity would take everything from each other in turns. */
function twinLives({ id, advertise }: LivingNode): Error {
  const where = advertise === '' ? '' : ` at ${advertise}`;
  return failedPrecondition(
    `another process lives as this replica${where}: it sends heartbeats as the node ${id}, which is the node-id of this data directory; each replica needs a data directory of its own, not a copy of another one's`,
  );
}

/** Without an address nobody could be sent here, and nobody could be sent on. */
function alonePerforce(id: string, living: readonly LivingNode[]): Error | undefined {
  const self = living.find(node => node.id === id);
  const other = living.find(node => node.id !== id && (node.advertise === '' || self?.advertise === ''));
  if (other === undefined) return undefined;
  const [lacks, has] =
    other.advertise === '' ? [`replica ${other.id}`, 'this one'] : ['this replica', `replica ${other.id}`];
  return failedPrecondition(
    `${lacks} lives over the same PostgreSQL as ${has} and has no cluster.listen: several replicas need cluster.listen and cluster.secretFile (or cluster.tls) each`,
  );
}

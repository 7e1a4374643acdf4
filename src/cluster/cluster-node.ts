import type { IncomingMessage } from 'node:http';
import { failedPrecondition, unavailable } from '../core/error.ts';
import { FORWARD_WAIT_MS, type ForwardingOptions } from '../http/forwarding.ts';
import { pause } from '../lib/backoff.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { LivingNode } from './contract.ts';
import { Forwarder, type ForwardMetrics } from './forwarder.ts';
import { ClusterListener, type ForwardedEntry, type PeerAnswers } from './listener.ts';
import { NodeLocator } from './locator.ts';
import { LostNodes, type LostNodesOptions } from './lost-nodes.ts';
import { OwnedShards, type ShardListener } from './owned-shards.ts';
import { Peers, splitAddress } from './peers.ts';
import { ClusterReplica } from './replicas.ts';
import { type ClusterIdentity, clusterTls } from './tls.ts';

export interface ClusterNodeOptions {
  /** URL of the PostgreSQL, whose tables are up to date. */
  readonly url: string;
  /** URL without the transaction pooler that `url` leads to; null: `url` leads to none. */
  readonly listenUrl: string | null;
  readonly nodeId: string;
  readonly version: string;
  readonly roles: readonly string[];
  /** Null: this is the only replica. */
  readonly connections: {
    /** `host:port` */
    readonly listen: string;
    /** Address at which the others reach it, `host:port`. */
    readonly advertise: string;
    readonly identity: ClusterIdentity;
  } | null;
  /** Time that calls of a shard may continue while it is transferred, milliseconds. */
  readonly releaseMs: number;
  /** Time after which a dead node counts as lost with all its instances, milliseconds. */
  readonly nodeLostMs: number;
  readonly podsLostMs: number;
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly log: Log;
}

/** Look-ups of the locator in the parts that own instances and jobs. */
export interface Placed {
  /** Returns true if the instance takes calls in this process. */
  readonly isLive: (instanceId: string) => boolean;
  readonly nodeOfInstance: (id: string) => Promise<string | null>;
  readonly nodeOfJob: (tenant: string, id: string, what: 'log' | 'stop') => Promise<string | null>;
}

const MAX_PEER_CONNECTIONS = 10_000;
const UNDER_WAY_MS = 500;
/**
 * Time in which a living replica joins again after its life has expired: one heartbeat (2 s) and a margin.
 */
const REJOIN_MS = 3_000;
/** Time in which all replicas join again one after the other after an outage of the database. */
const ALL_REJOIN_MS = 5_000;
const LOOK_MS = 250;
/** Timeout of requests that replicas make for themselves: their answers need no waiting. */
const ASK_MS = 2_000;

/**
 * Node of this process among several replicas over one PostgreSQL: its life among them, its leases, and its
 * connections to the others.
 */
export class ClusterNode {
  readonly replica: ClusterReplica;
  /** Shards of functions that are served here. */
  readonly shards: OwnedShards;
  /** Durable writes that notify other replicas. */
  readonly writes: DurableWrites;
  readonly #options: ClusterNodeOptions;
  readonly #lost: LostNodes;
  readonly #looks: Interval;
  #peers: Peers | undefined;
  /** Addresses of known replicas, with the time of their death (monotonic milliseconds); null: alive. */
  readonly #goneMs = new Map<string, number | null>();
  #listener: ClusterListener | undefined;
  #onGivenUp: LostNodesOptions['onGivenUp'] = () => undefined;

  private constructor(options: ClusterNodeOptions, replica: ClusterReplica) {
    this.#options = options;
    this.replica = replica;
    this.shards = new OwnedShards(replica.shards, options.releaseMs);
    this.writes = replica.feed.publishing(options.writes);
    this.#looks = new Interval(LOOK_MS, async () => this.#dropTheDead());
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
   * Joins the other replicas: from now on writes can be fenced. Takes no lease yet. Fails with `unavailable`
   * when PostgreSQL does not answer. Fails with `failed_precondition` when another process lives as this
   * node. Fails likewise when other replicas exist and one side has no cluster address.
   */
  static async join(options: ClusterNodeOptions): Promise<ClusterNode> {
    const { url, listenUrl, nodeId: id, version, roles, connections, log } = options;
    const advertise = connections?.advertise ?? '';
    const replica = await ClusterReplica.open({ url, listenUrl, self: { id, advertise, roles, version }, log });
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

  /** Returns `ClusterGauges` of `telemetry/gauges.ts`. */
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

  /** Returns true if the node was given up. */
  isLost(nodeId: string): boolean {
    return this.#lost.isLost(nodeId);
  }

  /** Returns the other living replicas that have an address. */
  others(): readonly { readonly id: string; readonly address: string }[] {
    const living = this.replica.membership.living();
    return living
      .filter(({ id, advertise }) => id !== this.#options.nodeId && advertise !== '')
      .map(({ id, advertise }) => ({ id, address: advertise }));
  }

  /**
   * Returns the answer of another replica's cluster listener at this path (`PeerAnswers`) as a stream. Fails
   * with `unavailable`.
   */
  async open(address: string, path: string): Promise<IncomingMessage> {
    return await this.#reachable().open(address, path, ASK_MS);
  }

  /**
   * Returns the parsed JSON that another replica answers at this path. Fails with `unavailable`, also after a
   * timeout.
   */
  async read(address: string, path: string): Promise<unknown> {
    return await this.#reachable().read(address, path, ASK_MS);
  }

  #reachable(): Peers {
    if (this.#peers === undefined) throw unavailable('this replica has no connections with others');
    return this.#peers;
  }

  /** Returns how requests reach the replica that must serve them; null for a single replica. */
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
   * Begins to serve requests of other replicas by `entry`, and to take leases. Everything here must be ready.
   * `listeners` are notified of shards. `on.otherLease` is called when another lease is acquired or lost.
   * `on.givenUp` is called after the work of a lost node was given up or taken over by this one. `on.answer`
   * answers requests that other replicas make for themselves.
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
    this.shards.setListeners(listeners, on.otherLease);
    this.replica.setLeaseOwner(this.shards);
  }

  /**
   * Continues for `drainMs`, so that load balancers notice that this replica is about to end. Then transfers
   * all leases and refuses new forwarded requests. Without a cluster listener there is no wait.
   */
  async retire(drainMs: number): Promise<void> {
    if (this.#listener !== undefined) await pause(drainMs);
    await this.replica.retire();
    if (this.#listener === undefined) return;
    this.#listener.drain();
    // Requests that were sent before the others knew still arrive, and are sent back.
    await pause(UNDER_WAY_MS);
  }

  /** Ends the life of this node. Writes cannot be fenced any more. */
  async close(): Promise<void> {
    this.#listener?.destroy();
    await this.#looks.close();
    this.#peers?.close();
    await this.#lost.close();
    await this.replica.leave();
  }

  /**
   * Closes the connections to dead replicas: a machine that vanishes or freezes closes none. Requests to it
   * fail within 14 s of its last heartbeat: its life (8 s), a heartbeat of this replica (2 s), `REJOIN_MS`,
   * and two passes. After an outage of the database, each replica counts as dead until it has joined again.
   */
  #dropTheDead(): void {
    const nowMs = performance.now();
    const { membership } = this.replica;
    const living = new Set(membership.living().map(({ advertise }) => advertise));
    const isSettled = membership.livesForMs() >= ALL_REJOIN_MS;
    for (const address of living) this.#goneMs.set(address, null);
    for (const [address, goneMs] of this.#goneMs) {
      if (living.has(address)) continue;
      if (goneMs === null) this.#goneMs.set(address, nowMs);
      else if (isSettled && nowMs - goneMs > REJOIN_MS) {
        this.#goneMs.delete(address);
        this.#peers?.drop(address);
      }
    }
  }
}

/** Two processes with the same node id would take leases from each other in turns. */
function twinLives({ id, advertise }: LivingNode): Error {
  const where = advertise === '' ? '' : ` at ${advertise}`;
  return failedPrecondition(
    `another process lives as this replica${where}: it sends heartbeats as the node ${id}, which is the node-id of this data directory; each replica needs a data directory of its own, not a copy of another one's`,
  );
}

/**
 * Returns an error when another replica exists and one of the two has no cluster address. Requests could then
 * not be forwarded.
 */
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

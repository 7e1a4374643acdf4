import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Served } from '../../scripts/served.ts';
import { messageOf } from '../../src/core/error.ts';
import { freePort } from '../parts/free-port.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { Random } from '../parts/random.ts';
import { ReadyReplicas } from './balancer.ts';
import { type Asked, Client, type Replica } from './client.ts';
import type { Harm, Harmed } from './harmed.ts';
import { describeProcess, describeZygotes } from './leftover.ts';
import { initsOf, kill, pidsOf, serversOf, zygotesOf } from './processes.ts';
import { Witness } from './witness.ts';

const START_TRIES = 10;
const SETTINGS = ['--set', 'jobs.allowHostPaths=true', '--set', 'orphanGraceMs=1000'];
const ORPHANS_MS = 60_000;
const READY_MS = 120_000;
/**
 * Timeout of an answer. A request may wait until a dead replica is replaced, and then for capacity on a busy
 * machine.
 */
const ANSWER_MS = 45_000;
/** Time until a killed replica starts again: usually too short for a takeover. `LONG_AWAY_MS` allows one. */
const AWAY_MS = [0, 4_000] as const;
const LONG_AWAY_MS = [9_000, 13_000] as const;
/** The longest freeze outlasts the time that a replica lives without a heartbeat. */
const FREEZE_MS = [300, 15_000] as const;
const DATABASE_AWAY_MS = [200, 5_000] as const;

/** A fault that was injected. Times are those of `performance.now()`. */
export interface HarmDone {
  readonly what: 'kill' | 'freeze' | 'end' | 'database';
  /** Name of the replica; null for the database. */
  readonly replica: string | null;
  readonly fromMs: number;
  /** Kills of the replica, each from the signal to the end of the process. */
  readonly deaths: { readonly fromMs: number; toMs: number }[];
  /** Time at which the replica accepted requests again. */
  toMs: number;
}

export interface FailedRequest extends Asked {
  /** True if this replica had answered the same path since its start, and so knew the owner. */
  readonly isWarm: boolean;
}

export interface ClusterPlan {
  readonly replicas: number;
  readonly seed: number;
  /** Number of times that the database is ended, alternately by a kill and by a restart. */
  readonly databaseEnds: number;
  /** Stops replicas only as an operator does: in order, one at a time. */
  readonly isRolling: boolean;
}

interface Node extends Replica {
  readonly dataDir: string;
  readonly args: readonly string[];
  readonly clusterAddress: string;
  server: Served | null;
  /** True while a fault affects the replica. */
  isHarmed: boolean;
}

/**
 * Several replicas over one PostgreSQL. Each is a process with its own data directory, and its ports stay the
 * same over restarts.
 */
export class HarmedCluster implements Harmed {
  readonly client: Client;
  readonly restMs: readonly [number, number];
  readonly witness: Witness;
  readonly done: HarmDone[] = [];
  /** Requests that failed: without an answer, or with an error of the service. */
  readonly failures: FailedRequest[] = [];
  asked = 0;
  readonly #plan: ClusterPlan;
  readonly #postgres: TestPostgres;
  readonly #nodes: readonly Node[];
  readonly #environment: Readonly<Record<string, string>>;
  readonly #secretDir: string;
  readonly #balancer: ReadyReplicas;
  readonly #running = new Set<Promise<void>>();
  /** Times of the last good answers, by replica and request. */
  readonly #answeredMs = new Map<string, number>();
  #databaseEnds = 0;
  #at = 0;
  #problem: unknown;

  private constructor(
    plan: ClusterPlan,
    postgres: TestPostgres,
    url: string,
    { nodes, secretDir }: { readonly nodes: readonly Node[]; readonly secretDir: string },
  ) {
    this.#plan = plan;
    this.#postgres = postgres;
    this.#nodes = nodes;
    this.#secretDir = secretDir;
    const secretFile = join(secretDir, 'secret');
    writeFileSync(secretFile, randomBytes(32).toString('hex'), { mode: 0o600 });
    this.#environment = { ROOKERY_STORAGE_URL: url, ROOKERY_CLUSTER_SECRET_FILE: secretFile };
    this.restMs = plan.isRolling ? [500, 1_500] : [3_000, 7_000];
    this.#balancer = new ReadyReplicas(nodes, new Random(plan.seed + 1));
    this.client = new Client(this.#balancer, asked => this.#note(asked), ANSWER_MS);
    this.witness = new Witness(url, new Map(nodes.map(({ name, clusterAddress }) => [clusterAddress, name])));
  }

  static async start(plan: ClusterPlan): Promise<HarmedCluster> {
    const postgres = await startPostgres();
    let cluster: HarmedCluster | undefined;
    try {
      const nodes: Node[] = [];
      for (let index = 0; index < plan.replicas; index++) nodes.push(await newNode(`r${index + 1}`));
      const secretDir = mkdtempSync(join(tmpdir(), 'rookery-history-secret-'));
      cluster = new HarmedCluster(plan, postgres, await postgres.database(), { nodes, secretDir });
      for (const node of nodes) await cluster.#begin(node);
      cluster.witness.start();
      await cluster.recovered();
      return cluster;
    } catch (error) {
      await (cluster?.end() ?? postgres.close());
      throw error;
    }
  }

  harm(random: Random, part: number): Harm | null {
    const { isRolling, databaseEnds } = this.#plan;
    if (isRolling) return this.#rollingHarm();
    if (this.#databaseEnds < databaseEnds && part > (this.#databaseEnds + 1) / (databaseEnds + 1)) {
      const isCrash = this.#databaseEnds % 2 === 0;
      this.#databaseEnds += 1;
      const awayMs = random.integer(...DATABASE_AWAY_MS);
      return {
        name: isCrash ? 'kill PostgreSQL' : 'restart PostgreSQL',
        run: () => this.#endDatabase(isCrash, awayMs),
      };
    }
    const free = this.#nodes.filter(({ isHarmed }) => !isHarmed);
    const node = random.pickAny(free);
    // At least one replica is always free of faults.
    if (node === undefined || free.length < 2) return null;
    return this.#harmOf(node, random);
  }

  #harmOf(node: Node, random: Random): Harm {
    const dice = random.next();
    const of = (name: string, work: () => Promise<void>): Harm => ({
      name: `${name} ${node.name}`,
      run: async () => this.#inBackground(node, work),
    });
    if (dice < 0.5) return of('kill', () => this.#kill(node, [random.integer(...AWAY_MS)]));
    if (dice < 0.62) return of('kill for long', () => this.#kill(node, [random.integer(...LONG_AWAY_MS)]));
    if (dice < 0.72) {
      const waits = [random.integer(...AWAY_MS), random.integer(50, 1_500)];
      return of('kill while it starts', () => this.#kill(node, waits));
    }
    if (dice < 0.82) return of('end', () => this.#endOrderly(node));
    if (dice < 0.94) return of('freeze', () => this.#freeze(node, random.integer(...FREEZE_MS)));
    return of('kill zygotes of', async () => {
      for (const pid of zygotesOf(node.dataDir)) kill(pid, 'SIGKILL');
    });
  }

  #rollingHarm(): Harm | null {
    const node = this.#nodes[this.#at % this.#nodes.length] as Node;
    // The next replica stops only after all replicas are ready again.
    if (!this.#nodes.every(({ name, isHarmed }) => !isHarmed && this.#balancer.isReady(name))) return null;
    this.#at += 1;
    return { name: `end ${node.name}`, run: async () => this.#inBackground(node, () => this.#endOrderly(node)) };
  }

  async recovered(): Promise<void> {
    await Promise.all(this.#running);
    if (this.#problem !== undefined) throw this.#problem;
    const untilMs = performance.now() + READY_MS;
    while (!this.#nodes.every(({ name }) => this.#balancer.isReady(name))) {
      if (performance.now() > untilMs) {
        throw new Error(`not all replicas are ready: ${this.#nodes.map(({ server }) => server?.output).join('\n')}`);
      }
      await delay(100);
    }
  }

  async end(): Promise<readonly string[]> {
    const left: string[] = [];
    await Promise.allSettled(this.#running);
    await this.client.close();
    await this.#balancer.close();
    try {
      for (const { server } of this.#nodes) await server?.end('SIGKILL');
      for (const node of this.#nodes) await this.#begin(node, ['--stop-agents']);
      await this.#withoutOrphans();
      for (const node of this.#nodes) {
        const code = await node.server?.end();
        if (code !== 0) left.push(`${node.name} ended with ${code ?? 'a signal'}: ${node.server?.output ?? ''}`);
        left.push(...(await processesLeft(node.dataDir)));
      }
      left.push(...(await this.witness.rowsLeft()));
    } catch (error) {
      left.push(`the replicas could not be ended: ${String(error)}`);
      for (const node of this.#nodes) {
        await node.server?.end('SIGKILL');
        await processesLeft(node.dataDir);
      }
    } finally {
      await this.witness.close();
      await this.#postgres.close();
      for (const { dataDir } of this.#nodes) rmSync(dataDir, { recursive: true, force: true });
      rmSync(this.#secretDir, { recursive: true, force: true });
    }
    return left;
  }

  #note(asked: Asked): void {
    this.asked += 1;
    const { status, replica, path, text, endedMs, sentMs } = asked;
    const key = `${replica} ${path}`;
    if (status !== null && status < 500) {
      this.#answeredMs.set(key, endedMs);
      return;
    }
    const beganMs = this.done.findLast(harm => harm.replica === replica && harm.what !== 'freeze')?.toMs ?? 0;
    const answeredMs = this.#answeredMs.get(key);
    const isWarm = answeredMs !== undefined && answeredMs > beganMs && answeredMs < sentMs;
    this.failures.push({ ...asked, text: text.slice(0, 400), isWarm });
  }

  #inBackground(node: Node, work: () => Promise<void>): void {
    node.isHarmed = true;
    const running = work()
      .catch((error: unknown) => {
        this.#problem ??= error;
      })
      .finally(() => {
        node.isHarmed = false;
        this.#running.delete(running);
      });
    this.#running.add(running);
  }

  /** Kills a replica and starts it again after each of these times. It keeps running after the last one. */
  async #kill(node: Node, waitsMs: readonly number[]): Promise<void> {
    const harm = this.#begun('kill', node);
    const death = dying(harm);
    await node.server?.end('SIGKILL');
    death.toMs = performance.now();
    this.#balancer.isGone(node.name);
    const [awayMs = 0, ...more] = waitsMs;
    await delay(awayMs);
    for (const waitMs of more) {
      const started = this.#start(node).catch(() => undefined);
      await delay(waitMs);
      const early = dying(harm);
      for (const pid of serversOf(node.dataDir)) kill(pid, 'SIGKILL');
      await started;
      await node.server?.end('SIGKILL');
      early.toMs = performance.now();
    }
    await this.#begin(node);
    await this.#over(harm, node);
  }

  async #endOrderly(node: Node): Promise<void> {
    const harm = this.#begun('end', node);
    const code = await node.server?.end();
    if (code !== 0) throw new Error(`${node.name} ended with ${code ?? 'a signal'}: ${node.server?.output ?? ''}`);
    await this.#begin(node);
    await this.#over(harm, node);
  }

  async #freeze(node: Node, forMs: number): Promise<void> {
    const harm = this.#begun('freeze', node);
    kill(node.server?.pid ?? 0, 'SIGSTOP');
    await delay(forMs);
    kill(node.server?.pid ?? 0, 'SIGCONT');
    await this.#over(harm, node);
  }

  async #endDatabase(isCrash: boolean, awayMs: number): Promise<void> {
    const harm = this.#begun('database', null);
    await (isCrash ? this.#postgres.kill() : this.#postgres.stop());
    await delay(awayMs);
    await this.#postgres.start();
    harm.toMs = performance.now();
  }

  #begun(what: HarmDone['what'], node: Node | null): HarmDone {
    const fromMs = performance.now();
    const harm = { what, replica: node?.name ?? null, fromMs, deaths: [], toMs: Number.POSITIVE_INFINITY };
    this.done.push(harm);
    return harm;
  }

  /** Waits until the load balancer reports the replica as ready, and records the time. */
  async #over(harm: HarmDone, { name }: Node): Promise<void> {
    const untilMs = performance.now() + READY_MS;
    while (!this.#balancer.isReady(name) && performance.now() < untilMs) await delay(50);
    harm.toMs = performance.now();
  }

  async #start(node: Node, more: readonly string[] = []): Promise<void> {
    node.server = await Served.start({
      dataDir: node.dataDir,
      args: [...node.args, ...SETTINGS, ...more],
      env: { ...this.#environment, ROOKERY_CLUSTER_LISTEN: node.clusterAddress },
    });
  }

  async #begin(node: Node, more: readonly string[] = []): Promise<void> {
    let why: unknown;
    for (let tries = 0; tries < START_TRIES; tries++) {
      try {
        await this.#start(node, more);
        return;
      } catch (error) {
        why = error;
        await delay(500);
      }
    }
    throw new Error(`${node.name} does not start any more: ${messageOf(why)}`, { cause: why });
  }

  /**
   * Waits, for a limited time, until no more sandboxes run than there are agents. Orphans are removed by
   * then.
   */
  async #withoutOrphans(): Promise<void> {
    const untilMs = performance.now() + ORPHANS_MS;
    const [first] = this.#nodes;
    for (;;) {
      const answer = await fetch(`${first?.frontendUrl}/api/agent?limit=1000&status=RUNNING`);
      const { instances } = (await answer.json()) as { readonly instances: readonly unknown[] };
      const inits = this.#nodes.flatMap(({ dataDir }) => initsOf(dataDir));
      if (inits.length <= instances.length || performance.now() > untilMs) return;
      await delay(200);
    }
  }
}

function dying({ deaths }: HarmDone): { toMs: number } {
  const death = { fromMs: performance.now(), toMs: Number.POSITIVE_INFINITY };
  deaths.push(death);
  return death;
}

async function newNode(name: string): Promise<Node> {
  const [port, metaPort, clusterPort] = [await freePort(), await freePort(), await freePort()];
  return {
    name,
    dataDir: mkdtempSync(join(tmpdir(), `rookery-history-${name}-`)),
    args: ['--port', String(port), '--meta-port', String(metaPort)],
    frontendUrl: `http://127.0.0.1:${port}`,
    metaUrl: `http://127.0.0.1:${metaPort}`,
    clusterAddress: `127.0.0.1:${clusterPort}`,
    server: null,
    isHarmed: false,
  };
}

/** Returns the processes that remain after a grace period, and kills them. */
async function processesLeft(dataDir: string): Promise<readonly string[]> {
  const untilMs = performance.now() + 10_000;
  let pids = pidsOf(dataDir);
  while (pids.length > 0 && performance.now() < untilMs) {
    await delay(100);
    pids = pidsOf(dataDir);
  }
  const left = pids.map(pid => `a process is left: ${describeProcess(pid)}`);
  if (pids.length > 0) left.push(describeZygotes(dataDir));
  for (const pid of pids) kill(pid, 'SIGKILL');
  return left;
}

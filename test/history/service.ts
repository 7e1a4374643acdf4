import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Served } from '../../scripts/served.ts';
import { messageOf } from '../../src/core/error.ts';
import { freePort } from '../parts/free-port.ts';
import type { Random } from '../parts/random.ts';
import { Client } from './client.ts';
import type { Harm, Harmed } from './harmed.ts';
import { describeProcess, describeZygotes } from './leftover.ts';
import { initsOf, kill, pidsOf, serversOf, zygotesOf } from './processes.ts';

/** Size of the disk: enough for the database, logs and sandboxes of a short history, and quickly full. */
const DISK_MB = 96;
const START_TRIES = 5;
/** Settings of the service. A short grace removes sandboxes whose start a kill interrupted. */
const SETTINGS = ['--set', 'jobs.allowHostPaths=true', '--set', 'orphanGraceMs=1000'];
const ORPHANS_MS = 60_000;
const FEW_DESCRIPTORS = [40, 140] as const;

/**
 * A service that gets faults. Its ports stay the same, so that callers also send requests while it is down or
 * starts. Its data directory is a small disk of its own where the machine allows one.
 */
export class HarmedService implements Harmed {
  readonly client: Client;
  readonly restMs = [300, 6_000] as const;
  readonly dataDir: string;
  readonly frontendPort: number;
  readonly metaPort: number;
  readonly hasOwnDisk: boolean;
  #server: Served | null = null;

  private constructor(dataDir: string, ports: readonly [number, number], hasOwnDisk: boolean) {
    this.dataDir = dataDir;
    [this.frontendPort, this.metaPort] = ports;
    this.hasOwnDisk = hasOwnDisk;
    const only = {
      name: 'the service',
      frontendUrl: `http://127.0.0.1:${this.frontendPort}`,
      metaUrl: `http://127.0.0.1:${this.metaPort}`,
    };
    this.client = new Client({ pick: () => only, passesOver: false });
  }

  harm(random: Random): Harm {
    const dice = random.next();
    if (dice < 0.3) return { name: 'kill', run: () => this.#kill(false, 0) };
    if (dice < 0.5) return { name: 'kill while it starts', run: () => this.#kill(true, random.integer(50, 1200)) };
    if (dice < 0.6) return { name: 'freeze the server', run: () => this.#freeze('server', random.integer(200, 4_000)) };
    if (dice < 0.7) return { name: 'freeze zygotes', run: () => this.#freeze('zygote', random.integer(200, 4_000)) };
    if (dice < 0.78) return { name: 'kill zygotes', run: async () => this.#killZygotes() };
    if (dice < 0.9 && this.hasOwnDisk) {
      return { name: 'full disk', fillsDisk: true, run: () => this.#fillDisk(random.integer(300, 3_000)) };
    }
    const descriptors = random.integer(...FEW_DESCRIPTORS);
    return { name: 'few descriptors', run: () => this.#starve(descriptors, random.integer(300, 2_000)) };
  }

  async recovered(): Promise<void> {
    // Each fault ends with a service that answers.
  }

  static async start(): Promise<HarmedService> {
    const dataDir = mkdtempSync(join(tmpdir(), 'rookery-history-'));
    const mount = ['-t', 'tmpfs', '-o', `size=${DISK_MB}m,mode=700`, 'rookery-history', dataDir];
    const { status } = spawnSync('mount', mount, { stdio: 'ignore' });
    const service = new HarmedService(dataDir, [await freePort(), await freePort()], status === 0);
    try {
      await service.#start();
    } catch (error) {
      service.#unmount();
      throw error;
    }
    return service;
  }

  async #start(under: readonly string[] = []): Promise<void> {
    const ports = ['--port', String(this.frontendPort), '--meta-port', String(this.metaPort)];
    const args = [...ports, ...SETTINGS];
    this.#server = await Served.start({ dataDir: this.dataDir, args, under });
  }

  /** Kills the service and starts it again. With `early` it is killed once more during its start. */
  async #kill(early: boolean, waitMs: number): Promise<void> {
    await this.#server?.end('SIGKILL');
    if (early) {
      const started = this.#start().catch(() => undefined);
      await delay(waitMs);
      for (const pid of serversOf(this.dataDir)) kill(pid, 'SIGKILL');
      await started;
      await this.#server?.end('SIGKILL');
    }
    await this.#begin();
  }

  /**
   * Runs the service for a while with so few descriptors that most work fails. The service may also refuse to
   * start.
   */
  async #starve(descriptors: number, forMs: number): Promise<void> {
    await this.#server?.end('SIGKILL');
    this.#server = null;
    const limit = `--nofile=${descriptors}:${descriptors}`;
    await this.#start(['prlimit', limit, '--']).catch(() => undefined);
    await delay(forMs);
    const starved = this.#server as Served | null;
    await starved?.end('SIGKILL');
    await this.#begin();
  }

  async #freeze(what: 'server' | 'zygote', forMs: number): Promise<void> {
    const pids = what === 'server' ? [this.#server?.pid ?? 0] : zygotesOf(this.dataDir);
    for (const pid of pids) kill(pid, 'SIGSTOP');
    await delay(forMs);
    for (const pid of pids) kill(pid, 'SIGCONT');
  }

  #killZygotes(): void {
    for (const pid of zygotesOf(this.dataDir)) kill(pid, 'SIGKILL');
  }

  /** Fills the disk for a while, so that every write fails. */
  async #fillDisk(forMs: number): Promise<void> {
    const filler = join(this.dataDir, 'filler');
    const { bavail, bsize } = statfsSync(this.dataDir);
    spawnSync('fallocate', ['-l', String(bavail * bsize), filler], { stdio: 'ignore' });
    try {
      // Fills the space that is still free after `fallocate`.
      for (let each = 0; each < 64; each++) writeFileSync(filler, Buffer.alloc(64 * 1024), { flag: 'a' });
    } catch {
      // The disk is full.
    }
    await delay(forMs);
    rmSync(filler, { force: true });
  }

  async end(): Promise<readonly string[]> {
    const left: string[] = [];
    await this.client.close();
    try {
      await this.#server?.end('SIGKILL');
      const last = await Served.start({ dataDir: this.dataDir, args: ['--stop-agents', ...SETTINGS] });
      await this.#withoutOrphans(last);
      const code = await last.end();
      if (code !== 0) left.push(`the last server ended with ${code ?? 'a signal'}: ${last.output}`);
      const deadlineMs = Date.now() + 10_000;
      let pids = pidsOf(this.dataDir);
      while (pids.length > 0 && Date.now() < deadlineMs) {
        await delay(100);
        pids = pidsOf(this.dataDir);
      }
      left.push(...pids.map(pid => `a process is left: ${describeProcess(pid)}`));
      // Kills all at once, because each end changes the reports about the others.
      for (const pid of pids) kill(pid, 'SIGKILL');
      if (pids.length > 0) left.push(describeZygotes(this.dataDir), `the last server said: ${last.output}`);
    } finally {
      this.#unmount();
    }
    return left;
  }

  /**
   * Waits, for a limited time, until no more sandboxes run than there are agents. Orphans are removed by
   * then.
   */
  async #withoutOrphans(server: Served): Promise<void> {
    const deadlineMs = Date.now() + ORPHANS_MS;
    for (;;) {
      const answer = await fetch(`${server.frontendUrl}/api/agent?limit=1000&status=RUNNING`);
      const { instances } = (await answer.json()) as { readonly instances: readonly unknown[] };
      const inits = initsOf(this.dataDir);
      if (inits.length <= instances.length || Date.now() > deadlineMs) return;
      await delay(200);
    }
  }

  async #begin(): Promise<void> {
    let why: unknown;
    for (let tries = 0; tries < START_TRIES; tries++) {
      try {
        await this.#start();
        return;
      } catch (error) {
        why = error;
        await delay(500);
      }
    }
    throw new Error(`the service does not start any more: ${messageOf(why)}`, { cause: why });
  }

  #unmount(): void {
    if (this.hasOwnDisk) spawnSync('umount', ['-l', this.dataDir]);
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}

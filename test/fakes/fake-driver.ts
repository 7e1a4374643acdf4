import { spawn } from 'node:child_process';
import { EventEmitter, once, setMaxListeners } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deadlineExceeded, failedPrecondition, type ServiceError, unavailable } from '../../src/core/error.ts';
import type { SandboxAccess } from '../../src/sandbox/access.ts';
import type {
  ExecRequest,
  ExecResult,
  ExitResult,
  ListedSandbox,
  LogRequest,
  ProbeResult,
  SandboxDriver,
  SandboxHandle,
  SandboxSpec,
  SandboxState,
  SandboxStats,
  StartedSandbox,
} from '../../src/sandbox/driver.ts';
import { FakeAccess, type FakeInside } from './fake-access.ts';
import { type FakeHandler, FakeRuntime } from './fake-runtime.ts';

/** Faults that tests inject. A test may change them at any time. */
export interface FakeFaults {
  /** Error of every start. */
  startError: ServiceError | undefined;
  /** Promise that every start waits for. With `obeysAbort`, a waiting start still obeys its signal. */
  startGate: Promise<void> | undefined;
  obeysAbort: boolean;
  /** Number of removals that fail before one succeeds. */
  removeFailures: number;
  /** Promise that every removal waits for, after the removals that fail. */
  removeGate: Promise<void> | undefined;
  /** Number of stops that fail before one succeeds. */
  stopFailures: number;
  /** Number of pauses that fail before one succeeds. */
  pauseFailures: number;
  /**
   * Reason why the engine does not answer. Every method except `close` fails with the reason, and the probe
   * reports it.
   */
  away: string | undefined;
  /** Reason why the state of every sandbox that has not ended is unknown. */
  unknown: string | undefined;
}

interface FakeSandbox {
  readonly spec: SandboxSpec;
  readonly handle: SandboxHandle;
  readonly runtime: FakeRuntime;
  readonly events: EventEmitter;
  readonly lines: { readonly atMs: number; readonly text: string }[];
  exit: ExitResult | undefined;
  /** Ends the pause; undefined: the sandbox is not paused. */
  resume: (() => void) | undefined;
  readonly ending: AbortController;
  readonly inside: FakeInside;
}

/**
 * A sandbox driver without sandboxes: each sandbox is a runtime in this process on a real unix socket. The
 * driver suite proves that the fake keeps the driver's contract. The fake outlives schedulers and fails on
 * demand.
 */
export class FakeDriver implements SandboxDriver {
  readonly name = 'fake';
  readonly handlers = new Map<string, FakeHandler>();
  /** Makes runtimes report when they begin to load. */
  tellsBegin = false;
  readonly faults: FakeFaults = {
    startError: undefined,
    startGate: undefined,
    obeysAbort: true,
    removeFailures: 0,
    removeGate: undefined,
    stopFailures: 0,
    pauseFailures: 0,
    away: undefined,
    unknown: undefined,
  };
  /** Requested starts, in their order. */
  readonly starts: SandboxSpec[] = [];
  /** Duration of each stage, which the driver reports for every start. */
  stages: Readonly<Record<string, number>> | undefined;
  readonly #directory = mkdtempSync(join(tmpdir(), 'rookery-fake-'));
  readonly #sandboxes = new Map<string, FakeSandbox>();
  #nextPid = 1;

  /** Returns the ids of instances whose sandboxes are not removed, running or not. */
  get instanceIds(): string[] {
    return [...this.#sandboxes.values()].map(({ spec }) => spec.instanceId);
  }

  get runningIds(): string[] {
    return [...this.#sandboxes.values()].filter(({ exit }) => !exit).map(({ spec }) => spec.instanceId);
  }

  /** Ends the sandbox as if the instance exited on its own. */
  kill(instanceId: string, exit: Partial<ExitResult> = { signal: 'SIGKILL' }): void {
    this.#end(this.#ofInstance(instanceId), { code: null, signal: null, oomKilled: false, atMs: Date.now(), ...exit });
  }

  /** Sends bytes from the sandbox's runtime without a request. */
  say(instanceId: string, bytes: Buffer): void {
    this.#ofInstance(instanceId).runtime.say(bytes);
  }

  dropConnections(instanceId: string): void {
    this.#ofInstance(instanceId).runtime.dropConnections();
  }

  becomeUnreachable(instanceId: string): void {
    this.#ofInstance(instanceId).runtime.becomeUnreachable();
  }

  /** Lets the sandbox run but answer no new connection before `until` resolves. */
  fallSilent(instanceId: string, until: Promise<void>): void {
    this.#ofInstance(instanceId).runtime.fallSilent(until);
  }

  /** Ends all sandboxes and removes their files. */
  async dispose(): Promise<void> {
    for (const sandbox of this.#sandboxes.values()) this.#end(sandbox, exitOf(0));
    this.#sandboxes.clear();
    await rm(this.#directory, { recursive: true, force: true });
  }

  async probe(): Promise<ProbeResult> {
    if (this.faults.away !== undefined) return { available: false, reason: this.faults.away };
    return {
      available: true,
      capabilities: {
        images: false,
        mounts: false,
        ports: false,
        users: false,
        cpuLimit: false,
        memoryLimit: false,
        pidsLimit: false,
        exec: true,
        isolation: [],
      },
      degraded: [],
    };
  }

  async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    this.#assertHere();
    this.starts.push(spec);
    const { startError, startGate, obeysAbort } = this.faults;
    if (startGate) await (obeysAbort ? Promise.race([startGate, aborted(signal)]) : startGate);
    if (obeysAbort && signal.aborted) throw deadlineExceeded('the start was aborted');
    if (startError) throw startError;
    const pid = this.#nextPid++;
    const path = join(this.#directory, `${pid}.sock`);
    const handle: SandboxHandle = {
      version: 1,
      driver: 'fake',
      instanceId: spec.instanceId,
      endpoint: { kind: 'unix', path },
      data: { pid },
    };
    const lines: FakeSandbox['lines'] = [];
    const events = new EventEmitter().setMaxListeners(0);
    const print = (line: string) => {
      lines.push({ atMs: Date.now(), text: line });
      events.emit('line', line);
    };
    const onExit = (code: number) => this.#end(sandbox, exitOf(code));
    const { handlers, tellsBegin } = this;
    const runtime = new FakeRuntime({ path, secret: spec.secret, handlers, tellsBegin, onExit, print });
    const ending = new AbortController();
    setMaxListeners(0, ending.signal);
    const inside = { env: spec.env, ended: ending.signal, openExecs: 0 };
    const sandbox: FakeSandbox = {
      spec,
      handle,
      runtime,
      events,
      lines,
      exit: undefined,
      ending,
      inside,
      resume: undefined,
    };
    await runtime.listen();
    this.#sandboxes.set(path, sandbox);
    const facts = {
      sandboxId: String(pid),
      nodeIp: '127.0.0.1',
      sandboxIp: '',
      portMappings: [],
      isolation: [],
      warnings: [],
    };
    return { handle, endpoint: handle.endpoint, facts, ...(this.stages && { stages: this.stages }) };
  }

  async wait(handle: SandboxHandle, signal?: AbortSignal): Promise<ExitResult> {
    this.#assertHere();
    const sandbox = this.#find(handle);
    if (!sandbox) return { code: null, signal: null, oomKilled: false, atMs: Date.now() };
    if (sandbox.exit) return sandbox.exit;
    try {
      await once(sandbox.events, 'exit', signal ? { signal } : {});
    } catch {
      throw deadlineExceeded('the sandbox still runs');
    }
    return sandbox.exit ?? exitOf(0);
  }

  async stop(handle: SandboxHandle, graceMs: number): Promise<void> {
    this.#assertHere();
    if (this.faults.stopFailures > 0) {
      this.faults.stopFailures--;
      throw unavailable('the stop failed on demand');
    }
    const sandbox = this.#find(handle);
    if (!sandbox || sandbox.exit) return;
    sandbox.resume?.();
    if (graceMs > 0) await sandbox.runtime.stop(graceMs);
    this.#end(sandbox, graceMs > 0 ? exitOf(0) : { ...exitOf(0), code: null, signal: 'SIGKILL' });
  }

  async remove(handle: SandboxHandle, cleared?: () => void): Promise<void> {
    this.#assertHere();
    if (this.faults.removeFailures > 0) {
      this.faults.removeFailures--;
      throw unavailable('the removal failed on demand');
    }
    const sandbox = this.#find(handle);
    if (!sandbox) return;
    this.#end(sandbox, { ...exitOf(0), code: null, signal: 'SIGKILL' });
    cleared?.();
    await this.faults.removeGate;
    this.#sandboxes.delete(pathOf(handle));
  }

  whyUnknown(): string | null {
    return this.faults.unknown ?? null;
  }

  async inspect(handle: SandboxHandle): Promise<SandboxState> {
    this.#assertHere();
    const sandbox = this.#find(handle);
    if (!sandbox) return { state: 'gone' };
    if (sandbox.exit) return { state: 'exited', exit: sandbox.exit };
    const { unknown } = this.faults;
    if (sandbox.resume !== undefined) return { state: 'paused' };
    return unknown === undefined ? { state: 'running' } : { state: 'unknown', reason: unknown };
  }

  async pause(handle: SandboxHandle): Promise<void> {
    this.#assertHere();
    const sandbox = this.#find(handle);
    if (!sandbox || sandbox.exit) throw failedPrecondition('the sandbox does not run');
    if (this.faults.pauseFailures > 0) {
      this.faults.pauseFailures--;
      throw unavailable('the pause failed on demand');
    }
    if (sandbox.resume !== undefined) return;
    const paused = new Promise<void>(resolve => {
      sandbox.resume = () => {
        sandbox.resume = undefined;
        resolve();
      };
    });
    sandbox.runtime.fallSilent(paused);
  }

  async resume(handle: SandboxHandle): Promise<void> {
    this.#assertHere();
    this.#find(handle)?.resume?.();
  }

  /** Returns true if the sandbox of an instance is paused. */
  isPaused(instanceId: string): boolean {
    return this.#ofInstance(instanceId).resume !== undefined;
  }

  async list(): Promise<readonly ListedSandbox[]> {
    this.#assertHere();
    return [...this.#sandboxes.values()].map(({ spec, handle, exit }) => ({
      instanceId: spec.instanceId,
      // Copies the handle, because a handle read from the database is a copy too.
      handle: structuredClone(handle),
      running: exit === undefined,
    }));
  }

  async exec(handle: SandboxHandle, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    this.#assertHere();
    const sandbox = this.#find(handle);
    if (!sandbox || sandbox.exit) throw failedPrecondition('the sandbox does not run');
    return await runCommand(request, sandbox.spec.env, signal);
  }

  async stats(): Promise<SandboxStats> {
    this.#assertHere();
    return { memoryBytes: process.memoryUsage.rss(), cpuMicros: 0, processes: 1 };
  }

  async *logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    this.#assertHere();
    const sandbox = this.#find(handle);
    if (!sandbox) return;
    const { events, lines } = sandbox;
    const fresh: string[] = [];
    const onLine = (line: string) => fresh.push(line);
    events.on('line', onLine);
    try {
      const { sinceMs, untilMs = Number.POSITIVE_INFINITY } = request;
      const since = lines.filter(({ atMs }) => (sinceMs === null || atMs >= sinceMs) && atMs < untilMs);
      const kept = request.tail === null ? since : since.slice(Math.max(0, since.length - request.tail));
      for (const { text } of kept) yield Buffer.from(`${text}\n`);
      while (request.follow) {
        for (const text of fresh.splice(0)) yield Buffer.from(`${text}\n`);
        if (sandbox.exit || signal.aborted) return;
        await Promise.race([once(events, 'line'), once(events, 'exit'), aborted(signal)]);
      }
    } finally {
      events.off('line', onLine);
    }
  }

  access(handle: SandboxHandle): SandboxAccess {
    this.#assertHere();
    return new FakeAccess(this.#find(handle)?.inside);
  }

  async close(): Promise<void> {}

  #assertHere(): void {
    if (this.faults.away !== undefined) throw unavailable(this.faults.away);
  }

  #find(handle: SandboxHandle): FakeSandbox | undefined {
    return this.#sandboxes.get(pathOf(handle));
  }

  #ofInstance(instanceId: string): FakeSandbox {
    const found = [...this.#sandboxes.values()].findLast(({ spec }) => spec.instanceId === instanceId);
    if (!found) throw new Error(`no sandbox of ${instanceId}`);
    return found;
  }

  #end(sandbox: FakeSandbox, exit: ExitResult): void {
    if (sandbox.exit) return;
    sandbox.exit = exit;
    sandbox.runtime.kill();
    sandbox.ending.abort();
    sandbox.events.emit('exit');
  }
}

function pathOf({ endpoint }: SandboxHandle): string {
  return endpoint.kind === 'unix' ? endpoint.path : '';
}

function exitOf(code: number): ExitResult {
  return { code, signal: null, oomKilled: false, atMs: Date.now() };
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Runs a command on the host, in a process group of its own. */
function runCommand(request: ExecRequest, env: SandboxSpec['env'], signal: AbortSignal): Promise<ExecResult> {
  return new Promise((resolve, reject) => {
    const [command = '', ...args] = request.argv;
    const child = spawn(command, args, {
      env: { ...env, ...request.env },
      cwd: request.workingDir || tmpdir(),
      detached: true,
    });
    let isCut = false;
    let isKilled = false;
    const killGroup = () => {
      isKilled = true;
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    };
    const collect = (stream: NodeJS.ReadableStream): Buffer[] => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      stream.on('data', (chunk: Buffer) => {
        const kept = chunk.subarray(0, request.maxOutputBytes - bytes);
        if (kept.length < chunk.length) isCut = true;
        bytes += kept.length;
        chunks.push(kept);
      });
      return chunks;
    };
    const stdout = collect(child.stdout);
    const stderr = collect(child.stderr);
    const timer = setTimeout(killGroup, request.timeoutMs);
    signal.addEventListener('abort', killGroup, { once: true });
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', killGroup);
    };
    child.on('error', error => {
      end();
      const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
      if (isMissing) resolve({ returncode: 127, stdout: '', stderr: `${command}: not found`, truncated: false });
      else reject(error);
    });
    child.on('close', code => {
      end();
      const text = (chunks: Buffer[]) => Buffer.concat(chunks).toString();
      resolve({
        returncode: isKilled ? -1 : (code ?? -1),
        stdout: text(stdout),
        stderr: text(stderr),
        truncated: isCut,
      });
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(request.stdin);
  });
}

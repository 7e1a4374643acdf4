import { setTimeout as delay } from 'node:timers/promises';
import { MEBIBYTE } from '../../core/units.ts';
import { linkedTo } from '../../lib/linked-signal.ts';
import { forEachOf } from '../../lib/parallel.ts';
import { allAgents } from '../agent/records.ts';
import { allFunctions } from '../function/read.ts';
import { functionPath } from '../function/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { clearScreen, printFields, printJson, printTable } from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';
import type { Sort } from './top-sorts.ts';

interface TopOptions extends ClientOptions {
  readonly once?: boolean;
  readonly interval: string;
  readonly limit: string;
  readonly sort: Sort;
  readonly json?: boolean;
}

/** A line of the table; null: unknown. */
interface Row {
  readonly kind: 'agent' | 'function';
  readonly name: string;
  readonly status: string;
  readonly cpu_millis: number | null;
  readonly memory_mb: number | null;
  /** The limit of all sandboxes together; 0 for a function without an instance. */
  readonly cpu_limit_millis: number | null;
  readonly memory_limit_mb: number | null;
  /** Calls of the last minute. */
  readonly calls: number | null;
  readonly errors: number | null;
  readonly p50_ms: number | null;
}

/** Usage by the id of an instance. */
type Used = Map<string, { readonly cpuMicros: number; readonly atMs: number }>;

interface Stats {
  readonly instance_id: string;
  readonly cpu_micros?: unknown;
  readonly memory_bytes?: unknown;
}

interface Look {
  /** Null: the token may not see the machine. */
  readonly machine: Readonly<Record<string, number | null>> | null;
  readonly rows: readonly Row[];
}

/** CPU is a difference between two polls, so the second poll follows the first early. */
const FIRST_LOOK_MS = 1000;
const REQUESTS_AT_ONCE = 8;
/** The kinds of functions that can be called. */
const CALLED_KINDS: readonly string[] = ['agent', 'faas'];
const MACHINE = ['cpu_millis', 'memory_mb', 'service_cpu_millis', 'service_memory_mb'] as const;

export async function showTop(io: Io, options: TopOptions): Promise<void> {
  if (!/^[1-9]\d{0,3}$/.test(options.limit))
    throw usageError(`--limit must be a whole number from 1 to 9999, not ${JSON.stringify(options.limit)}.`);
  const intervalMs = parseDurationMs(options.interval, '--interval');
  const top = new Top(await Client.open(options, io), Number(options.limit));
  await top.look();
  const isOnce = options.once === true || options.json === true || !io.out.isTerminal;
  const keys = new TopKeys(io, options.sort);
  let read: Look | null = null;
  const draw = () => {
    if (read === null) return;
    const sorted = { ...read, rows: read.rows.toSorted(ORDERS[keys.sort]) };
    if (options.json === true) printJson(io, sorted);
    else {
      if (!isOnce) io.out.write(clearScreen());
      printLook(io, sorted);
      if (!isOnce && io.terminal !== undefined) io.out.write(`\n${keys.isHelpShown ? KEY_HELP : KEY_HINT}\n`);
    }
  };
  if (!isOnce) keys.start(draw);
  try {
    for (let waitMs = FIRST_LOOK_MS; !keys.signal.aborted; waitMs = intervalMs) {
      await delay(waitMs, undefined, { signal: keys.signal }).catch(() => {});
      if (keys.signal.aborted) return;
      read = await top.look();
      draw();
      if (isOnce) return;
    }
  } finally {
    if (!isOnce) keys.stop();
  }
}

const by =
  (value: (row: Row) => number | null) =>
  (a: Row, b: Row): number =>
    (value(b) ?? 0) - (value(a) ?? 0) || (b.calls ?? 0) - (a.calls ?? 0) || ORDER_OF_NAMES(a, b);

const ORDER_OF_NAMES = (a: Row, b: Row): number => (a.name < b.name ? -1 : 1);

const ORDERS: Readonly<Record<Sort, (a: Row, b: Row) => number>> = {
  cpu: by(row => row.cpu_millis),
  memory: by(row => row.memory_mb),
  calls: by(row => row.calls),
  errors: by(row => row.errors),
  name: ORDER_OF_NAMES,
};

function printLook(io: Io, { machine, rows }: Look): void {
  if (machine !== null) {
    const { cpu_millis: cpu, memory_mb: memory, service_cpu_millis: ownCpu, service_memory_mb: ownMemory } = machine;
    printFields(io, [
      ['machine', `${textOf(cpu ?? null)} millicores, ${textOf(memory ?? null)} MB`],
      ['service', `${textOf(ownCpu ?? null)} millicores, ${textOf(ownMemory ?? null)} MB`],
    ]);
    io.out.write('\n');
  }
  printTable(io, COLUMNS, rows);
}

const COLUMNS = [
  { title: 'KIND', text: ({ kind }: Row) => kind },
  { title: 'NAME', text: ({ name }: Row) => name, isFlexible: true },
  { title: 'STATUS', text: ({ status }: Row) => status },
  { title: 'CPU/LIMIT', text: (row: Row) => ofLimit(row.cpu_millis, row.cpu_limit_millis) },
  { title: 'MB/LIMIT', text: (row: Row) => ofLimit(row.memory_mb, row.memory_limit_mb) },
  { title: 'CALLS/MIN', text: ({ calls }: Row) => String(calls ?? '-') },
  { title: 'ERRORS', text: ({ errors }: Row) => String(errors ?? '-') },
  { title: 'P50 MS', text: (row: Row) => textOf(row.p50_ms) },
];

function ofLimit(used: number | null, limit: number | null): string {
  return limit === null ? textOf(used) : `${textOf(used)}/${textOf(limit)}`;
}

function textOf(number: number | null): string {
  if (number === null) return '-';
  return number > 0 && number < 10 ? number.toFixed(1) : String(Math.round(number));
}

function limitsOf(
  { cpu, memory }: { readonly cpu?: unknown; readonly memory?: unknown },
  count: number,
): Pick<Row, 'cpu_limit_millis' | 'memory_limit_mb'> {
  const limit = (each: unknown) => (typeof each === 'number' ? each * count : null);
  return { cpu_limit_millis: limit(cpu), memory_limit_mb: limit(memory) };
}

class Top {
  readonly #client: Client;
  readonly #limit: number;
  /** Usage of each agent and function instance at the last poll. */
  #used: Used = new Map();

  constructor(client: Client, limit: number) {
    this.#client = client;
    this.#limit = limit;
  }

  async look(): Promise<Look> {
    const [machine, agents, functions] = await Promise.all([
      this.#machine(),
      allAgents(this.#client, {}, this.#limit),
      allFunctions(this.#client, { at: 'latest' }, this.#limit),
    ]);
    const rows: Row[] = [];
    const before = this.#used;
    this.#used = new Map();
    await forEachOf(
      agents.agents,
      REQUESTS_AT_ONCE,
      async ({ instance_id: id, namespace, name, status, resources }) => {
        const [used, calls] = await Promise.all([this.#ofAgent(id, before), this.#calls({ agent: id })]);
        rows.push({
          kind: 'agent',
          name: `${namespace}/${name}`,
          status,
          ...used,
          ...limitsOf(resources ?? {}, 1),
          ...calls,
        });
      },
    );
    await forEachOf(functions.functions, REQUESTS_AT_ONCE, async fn => {
      const { name, functionVersionUrn: urn, kind } = fn;
      if (kind === undefined || !CALLED_KINDS.includes(kind)) return;
      const [instances, used, calls] = await Promise.all([
        this.#instances(urn),
        this.#ofFunction(urn, before),
        this.#calls({ function: name }),
      ]);
      const { ready, all } = instances;
      const status = `${ready}/${all} ready`;
      rows.push({ kind: 'function', name, status, ...used, ...limitsOf(fn, all), ...calls });
    });
    return { machine, rows };
  }

  async #machine(): Promise<Look['machine']> {
    const series = await this.#series({});
    return series === null ? null : Object.fromEntries(MACHINE.map(name => [name, lastOf(series[name])]));
  }

  async #ofAgent(id: string, before: Used) {
    const stats = await orNull(this.#client.json('GET', `/api/agent/${encodeURIComponent(id)}/stats`));
    return this.#usage(stats === null ? null : [{ ...stats, instance_id: id }], before);
  }

  async #ofFunction(urn: string, before: Used) {
    const answer = await orNull(this.#client.json('GET', functionPath(urn, 'stats')));
    return this.#usage((answer?.instances ?? null) as readonly Stats[] | null, before);
  }

  /**
   * Returns the usage of these instances together. CPU counts only instances of the last poll; null if none
   * existed then.
   */
  #usage(instances: readonly Stats[] | null, before: Used): Pick<Row, 'cpu_millis' | 'memory_mb'> {
    // The agent or function does not run.
    if (instances === null) return { cpu_millis: null, memory_mb: null };
    let cpu: number | null = instances.length === 0 ? 0 : null;
    let memoryBytes = 0;
    for (const { instance_id: id, cpu_micros, memory_bytes } of instances) {
      const now = { cpuMicros: Number(cpu_micros), atMs: performance.now() };
      const last = before.get(id);
      this.#used.set(id, now);
      // After a restart the counter begins at 0.
      if (last !== undefined && now.cpuMicros >= last.cpuMicros)
        cpu = (cpu ?? 0) + (now.cpuMicros - last.cpuMicros) / (now.atMs - last.atMs);
      memoryBytes += Number(memory_bytes);
    }
    return { cpu_millis: cpu, memory_mb: memoryBytes / MEBIBYTE };
  }

  async #instances(urn: string): Promise<{ readonly ready: number; readonly all: number }> {
    const answer = await orNull(this.#client.json('GET', functionPath(urn, 'instances')));
    const all = (answer?.instances ?? []) as readonly { readonly status: string }[];
    return { ready: all.filter(({ status }) => status === 'ready').length, all: all.length };
  }

  async #calls(of: Readonly<Record<string, string>>) {
    const { calls, errors, p50_ms: p50 } = (await this.#series(of)) ?? {};
    return { calls: lastMinuteOf(calls), errors: lastMinuteOf(errors), p50_ms: lastOf(p50) };
  }

  async #series(of: Readonly<Record<string, string>>): Promise<Readonly<Record<string, Series>> | null> {
    const query = new URLSearchParams({ range: '1h', ...of });
    const answer = await orNull(this.#client.json('GET', `/api/metrics/history?${query}`));
    return answer === null ? null : (answer.series as Readonly<Record<string, Series>>);
  }
}

type Series = readonly (number | null)[];

/** Returns the sum of the last minute; each step has 10 seconds. */
function lastMinuteOf(series: Series = []): number | null {
  const known = series.slice(-6).filter(point => point !== null);
  return known.length === 0 ? null : known.reduce((sum, point) => sum + point, 0);
}

function lastOf(series: Series = []): number | null {
  return series.slice(-6).findLast(point => point !== null) ?? null;
}

/** Returns null if the resource does not exist, or is hidden from this token. */
async function orNull<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof CliError && [403, 404, 409, 503].includes(error.status ?? 0)) return null;
    throw error;
  }
}

const SORT_KEYS: Readonly<Record<string, Sort>> = { c: 'cpu', m: 'memory', k: 'calls', e: 'errors', n: 'name' };
const CTRL_C = '\x03';

/** The choices that the keys of `rookery top` have made. */
export class TopKeys {
  sort: Sort;
  isHelpShown = false;
  /** Aborts when the user presses q or Ctrl-C, or when the command ends otherwise. */
  readonly signal: AbortSignal;
  readonly #ending: ReturnType<typeof linkedTo>;
  readonly #io: Io;
  readonly #onKeys = (chunk: Buffer | string) => this.#read(String(chunk));
  /** Draws again after a key has changed the view. */
  #changed: () => void = () => undefined;

  constructor(io: Io, sort: Sort) {
    this.#io = io;
    this.sort = sort;
    this.#ending = linkedTo(io.signal);
    this.signal = this.#ending.controller.signal;
  }

  /** Reads keys until `stop`. Does nothing without a terminal. */
  start(changed: () => void): void {
    if (this.#io.terminal === undefined) return;
    this.#changed = changed;
    this.#io.terminal.setRaw(true);
    this.#io.stdin.on('data', this.#onKeys);
  }

  stop(): void {
    this.#ending.unlink();
    if (this.#io.terminal === undefined) return;
    this.#io.stdin.off('data', this.#onKeys).pause();
    this.#io.terminal.setRaw(false);
  }

  #read(keys: string): void {
    for (const key of keys) {
      if (key === 'q' || key === 'Q' || key === CTRL_C) this.#ending.controller.abort();
      else if (key === 'h' || key === '?') this.isHelpShown = !this.isHelpShown;
      else this.sort = SORT_KEYS[key] ?? this.sort;
    }
    if (!this.signal.aborted) this.#changed();
  }
}

export const KEY_HELP = 'q: quit   sort by c: CPU, m: memory, k: calls, e: errors, n: name   h: hide this';
export const KEY_HINT = 'q: quit   h: keys';

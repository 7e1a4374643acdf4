import { setTimeout as delay } from 'node:timers/promises';
import { forEachOf } from '../lib/parallel.ts';
import { allAgents } from './agent-records.ts';
import { Client, type ClientOptions } from './client.ts';
import { parseDurationMs } from './duration.ts';
import { CliError, usageError } from './exit.ts';
import { allFunctions } from './function-read.ts';
import { functionPath } from './function-records.ts';
import type { Io } from './io.ts';
import { clearScreen, printFields, printJson, printTable } from './print.ts';

interface TopOptions extends ClientOptions {
  readonly once?: boolean;
  readonly interval: string;
  readonly limit: string;
  readonly json?: boolean;
}

/** One line; null: not known. */
interface Row {
  readonly kind: 'agent' | 'function';
  readonly name: string;
  readonly status: string;
  readonly cpu_millis: number | null;
  readonly memory_mb: number | null;
  /** Of the last minute. */
  readonly calls: number | null;
  readonly errors: number | null;
  readonly p50_ms: number | null;
}

/** By the id of an instance. */
type Used = Map<string, { readonly cpuMicros: number; readonly atMs: number }>;

interface Stats {
  readonly instance_id: string;
  readonly cpu_micros?: unknown;
  readonly memory_bytes?: unknown;
}

interface Look {
  /** null: the token does not see it. */
  readonly machine: Readonly<Record<string, number | null>> | null;
  readonly rows: readonly Row[];
}

/** CPU is a difference, and the first look has nothing before it. */
const FIRST_LOOK_MS = 1000;
const REQUESTS_AT_ONCE = 8;
/** Of functions: those that can be called. */
const CALLED_KINDS: readonly string[] = ['agent', 'faas'];
const MEBIBYTE = 1024 * 1024;
const MACHINE = ['cpu_millis', 'memory_mb', 'service_cpu_millis', 'service_memory_mb'] as const;

export async function showTop(io: Io, options: TopOptions): Promise<void> {
  if (!/^[1-9]\d{0,3}$/.test(options.limit))
    throw usageError(`--limit must be a whole number from 1 to 9999, not ${JSON.stringify(options.limit)}.`);
  const intervalMs = parseDurationMs(options.interval, '--interval');
  const top = new Top(await Client.open(options, io), Number(options.limit));
  await top.look();
  const isOnce = options.once === true || options.json === true || !io.out.isTerminal;
  for (let waitMs = FIRST_LOOK_MS; !io.signal.aborted; waitMs = intervalMs) {
    await delay(waitMs, undefined, { signal: io.signal }).catch(() => {});
    const look = await top.look();
    if (options.json === true) printJson(io, look);
    else {
      if (!isOnce) io.out.write(clearScreen());
      printLook(io, look);
    }
    if (isOnce) return;
  }
}

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
  { title: 'CPU', text: (row: Row) => textOf(row.cpu_millis) },
  { title: 'MB', text: (row: Row) => textOf(row.memory_mb) },
  { title: 'CALLS/MIN', text: ({ calls }: Row) => String(calls ?? '-') },
  { title: 'ERRORS', text: ({ errors }: Row) => String(errors ?? '-') },
  { title: 'P50 MS', text: (row: Row) => textOf(row.p50_ms) },
];

function textOf(number: number | null): string {
  if (number === null) return '-';
  return number > 0 && number < 10 ? number.toFixed(1) : String(Math.round(number));
}

class Top {
  readonly #client: Client;
  readonly #limit: number;
  /** Of each agent and each instance of a function at the last look. */
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
    await forEachOf(agents.agents, REQUESTS_AT_ONCE, async ({ instance_id: id, namespace, name, status }) => {
      const [used, calls] = await Promise.all([this.#ofAgent(id, before), this.#calls({ agent: id })]);
      rows.push({ kind: 'agent', name: `${namespace}/${name}`, status, ...used, ...calls });
    });
    await forEachOf(functions.functions, REQUESTS_AT_ONCE, async ({ name, functionVersionUrn: urn, kind }) => {
      if (kind === undefined || !CALLED_KINDS.includes(kind)) return;
      const [status, used, calls] = await Promise.all([
        this.#instances(urn),
        this.#ofFunction(urn, before),
        this.#calls({ function: name }),
      ]);
      rows.push({ kind: 'function', name, status, ...used, ...calls });
    });
    // Who uses most stands first.
    const weight = (row: Row) => [row.cpu_millis ?? 0, row.calls ?? 0] as const;
    rows.sort((a, b) => {
      const [[cpuA, callsA], [cpuB, callsB]] = [weight(a), weight(b)];
      return cpuB - cpuA || callsB - callsA || (a.name < b.name ? -1 : 1);
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

  /** Of these together; the processor time is that of the ones that were there at the last look, and null when none was. */
  #usage(instances: readonly Stats[] | null, before: Used): Pick<Row, 'cpu_millis' | 'memory_mb'> {
    // It does not run.
    if (instances === null) return { cpu_millis: null, memory_mb: null };
    let cpu: number | null = instances.length === 0 ? 0 : null;
    let memoryBytes = 0;
    for (const { instance_id: id, cpu_micros, memory_bytes } of instances) {
      const now = { cpuMicros: Number(cpu_micros), atMs: performance.now() };
      const last = before.get(id);
      this.#used.set(id, now);
      // After a restart it counts from 0.
      if (last !== undefined && now.cpuMicros >= last.cpuMicros)
        cpu = (cpu ?? 0) + (now.cpuMicros - last.cpuMicros) / (now.atMs - last.atMs);
      memoryBytes += Number(memory_bytes);
    }
    return { cpu_millis: cpu, memory_mb: memoryBytes / MEBIBYTE };
  }

  async #instances(urn: string): Promise<string> {
    const answer = await orNull(this.#client.json('GET', functionPath(urn, 'instances')));
    const all = (answer?.instances ?? []) as readonly { readonly status: string }[];
    return `${all.filter(({ status }) => status === 'ready').length}/${all.length} ready`;
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

/** Steps are of 10 seconds. */
function lastMinuteOf(series: Series = []): number | null {
  const known = series.slice(-6).filter(point => point !== null);
  return known.length === 0 ? null : known.reduce((sum, point) => sum + point, 0);
}

function lastOf(series: Series = []): number | null {
  return series.slice(-6).findLast(point => point !== null) ?? null;
}

/** null: it is not there, or not shown to this token. */
async function orNull<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof CliError && [403, 404, 409, 503].includes(error.status ?? 0)) return null;
    throw error;
  }
}

import {
  between,
  type CountedCalls,
  NO_CALLS,
  quantile,
  RecentCounts,
  type SubjectUsage,
  sumOf,
} from './call-counts.ts';
import {
  type HistoryRange,
  RANGE_POINTS,
  RANGES,
  RESOLUTIONS,
  type Resolution,
  SeriesHistory,
  STEPS,
} from './series-history.ts';

/** Numbers of the service at one moment, by name. */
export type Levels = Readonly<Record<string, number>>;

export interface HistorySources {
  /** Returns the counts of all calls together. */
  readonly service: () => CountedCalls;
  /** Returns every function that was called. Their number is bounded. */
  readonly functions: () => Iterable<readonly [key: string, calls: CountedCalls]>;
  /** Returns every existing agent that was called. Their number is bounded. */
  readonly agents: () => Iterable<readonly [id: string, calls: CountedCalls]>;
  readonly levels: () => Levels;
  /** Returns the levels of functions that have instances, by function key. */
  readonly functionLevels?: () => ReadonlyMap<string, Levels>;
  /** Returns the levels of running agents, by id. Their number is bounded. */
  readonly agentLevels?: () => ReadonlyMap<string, Levels>;
  /** Returns the tenant of a running agent. */
  readonly tenantOfAgent?: (id: string) => string | undefined;
}

export interface HistoryAnswer {
  readonly step_seconds: number;
  /** Time of the first point, in seconds since 1970. */
  readonly start: number;
  /** A list of values for each name, oldest first; null: unknown. */
  readonly series: Readonly<Record<string, readonly (number | null)[]>>;
}

/** Levels of a function without instances. */
const NO_INSTANCES: Levels = { instances: 0, instances_ready: 0 };
const SERVICE = '';
const CALL_SERIES = ['calls', 'errors', 'p50_ms', 'p99_ms'] as const;

/**
 * The last day of metrics in memory of fixed size: a ring buffer for each series and resolution.
 * Every 10 seconds it samples the existing counters, so it costs nothing on the path of a call.
 */
export class MetricsHistory {
  readonly #sources: HistorySources;
  readonly #maxFunctions: number;
  readonly #now: () => number;
  readonly #node: string | undefined;
  /** Subjects by `f:<key>` and `a:<id>`, the least recently called first; `''` is the service. */
  readonly #subjects = new Map<string, Subject>();
  /** Counts of functions at the time when their history was evicted for another's. */
  readonly #left = new Map<string, CountedCalls>();
  readonly #listeners = new Set<(json: string) => void>();
  #timer: NodeJS.Timeout | undefined;

  constructor(
    sources: HistorySources,
    {
      maxFunctions,
      now = Date.now,
      node,
    }: { readonly maxFunctions: number; readonly now?: () => number; readonly node?: string },
  ) {
    this.#node = node;
    this.#sources = sources;
    this.#maxFunctions = maxFunctions;
    this.#now = now;
  }

  start(): void {
    this.sample();
    this.#timer = setInterval(() => this.sample(), STEPS.fine.seconds * 1000).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Calls `listener` with the newest point of the service's series, as JSON. Returns unsubscribe. */
  onSample(listener: (json: string) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Samples all sources now. */
  sample(): void {
    const { service, functions, agents, levels, functionLevels, agentLevels, tenantOfAgent } = this.#sources;
    const seconds = Math.floor(this.#now() / 1000);
    const agentKeys = new Set<string>();
    const ofAgents = agentLevels?.() ?? new Map<string, Levels>();
    const agentCalls = new Map(agents());
    for (const id of new Set([...agentCalls.keys(), ...ofAgents.keys()])) {
      const key = `a:${id}`;
      agentKeys.add(key);
      this.#sample(key, agentCalls.get(id) ?? NO_CALLS, seconds, ofAgents.get(id));
      const subject = this.#subjects.get(key);
      if (subject !== undefined) subject.tenant ??= tenantOfAgent?.(id);
    }
    const ofFunctions = functionLevels?.();
    const functionKeys = new Set<string>();
    for (const [key, calls] of functions()) {
      functionKeys.add(`f:${key}`);
      this.#sample(`f:${key}`, calls, seconds, ofFunctions?.get(key) ?? NO_INSTANCES);
    }
    // A later function or agent with the same name starts from zero.
    for (const known of [this.#subjects, this.#left]) {
      for (const key of known.keys()) {
        if (key !== SERVICE && !agentKeys.has(key) && !functionKeys.has(key)) known.delete(key);
      }
    }
    this.#makeRoom(agentKeys.size);
    const newest = this.#subject(SERVICE).addSample(seconds, service(), levels());
    if (this.#listeners.size === 0) return;
    const json = JSON.stringify({ at: seconds, node: this.#node, ...newest });
    for (const listener of [...this.#listeners]) listener(json);
  }

  /** Returns the history of the whole service. */
  service(range: HistoryRange): HistoryAnswer {
    return this.#read(SERVICE, range);
  }

  /**
   * Returns the history of a function by its key, or of an agent by its id. Values are null for a subject
   * without calls.
   */
  calls(kind: 'function' | 'agent', key: string, range: HistoryRange): HistoryAnswer {
    return this.#read(`${kind === 'function' ? 'f' : 'a'}:${key}`, range);
  }

  /** Returns the usage of a tenant's agents by id, or of its functions by name. */
  usage(kind: 'function' | 'agent', tenant: string): Record<string, SubjectUsage> {
    const seconds = Math.floor(this.#now() / 1000);
    const found: [string, SubjectUsage][] = [];
    for (const [key, subject] of this.#subjects) {
      if (!key.startsWith(kind === 'agent' ? 'a:' : 'f:')) continue;
      if (kind === 'agent') {
        if (subject.tenant === tenant) found.push([key.slice(2), subject.usage(seconds)]);
      } else if (key.startsWith(`f:${tenant}/`)) found.push([key.slice(tenant.length + 3), subject.usage(seconds)]);
    }
    return Object.fromEntries(found);
  }

  #sample(key: string, calls: CountedCalls, seconds: number, levels: Levels | undefined): void {
    const before = this.#subjects.get(key)?.counted ?? this.#left.get(key) ?? NO_CALLS;
    const hasNew = sumOf(calls.buckets) !== sumOf(before.buckets);
    // The levels of an agent begin its history, because an agent may work without calls.
    const begins = key.startsWith('a:') && levels !== undefined;
    if (!hasNew && !begins && !this.#subjects.has(key)) return;
    const subject = this.#subject(key);
    if (hasNew) {
      this.#subjects.delete(key);
      this.#subjects.set(key, subject);
    }
    subject.addSample(seconds, calls, levels ?? {});
  }

  #subject(key: string): Subject {
    let subject = this.#subjects.get(key);
    if (subject === undefined) {
      subject = new Subject(this.#left.get(key) ?? NO_CALLS, !key.startsWith('a:'));
      this.#left.delete(key);
      this.#subjects.set(key, subject);
    }
    return subject;
  }

  /** Evicts the least recently called functions. */
  #makeRoom(agents: number): void {
    let over = this.#subjects.size - agents - this.#maxFunctions - 1;
    for (const [key, subject] of this.#subjects) {
      if (over <= 0) return;
      if (!key.startsWith('f:')) continue;
      this.#left.set(key, subject.counted);
      this.#subjects.delete(key);
      over -= 1;
    }
  }

  #read(key: string, range: HistoryRange): HistoryAnswer {
    const { of, points } = RANGE_POINTS[range];
    const step = STEPS[of].seconds;
    const last = Math.floor(this.#now() / 1000 / step);
    const series = { ...nothing(points), ...this.#subjects.get(key)?.read(of, last, points) };
    return { step_seconds: step, start: (last - points + 1) * step, series };
  }
}

/** The stored history of a subject. */
class Subject {
  counted: CountedCalls;
  /** Tenant of an agent; undefined: not known yet, or no agent. */
  tenant: string | undefined;
  /** True if the series of calls are stored. Those of an agent are stored from its first call on. */
  #hasCalls: boolean;
  #levels: Levels = {};
  readonly #recent = new RecentCounts();
  readonly #rows = new Map<string, SeriesHistory>();
  readonly #steps: Readonly<Record<Resolution, ResolutionStep>>;

  constructor(counted: CountedCalls, hasCalls: boolean) {
    this.counted = counted;
    this.#hasCalls = hasCalls;
    this.#steps = {
      fine: new ResolutionStep('fine', counted),
      middle: new ResolutionStep('middle', counted),
      coarse: new ResolutionStep('coarse', counted),
    };
  }

  /** Writes the changes since the last sample, and returns the newest point of the finest resolution. */
  addSample(seconds: number, calls: CountedCalls, levels: Levels): Levels {
    this.#recent.begin(seconds, this.counted);
    this.#levels = levels;
    this.#hasCalls ||= sumOf(calls.buckets) > 0;
    this.counted = { buckets: [...calls.buckets], errors: calls.errors };
    let newest: Levels = {};
    for (const resolution of RESOLUTIONS) {
      const step = this.#steps[resolution];
      const ofCalls = step.addSample(seconds, this.counted);
      const point = { ...(this.#hasCalls ? ofCalls : {}), ...levels };
      if (resolution === 'fine') newest = point;
      for (const [name, value] of Object.entries(point)) this.#row(name).set(resolution, step.slot, value);
    }
    return newest;
  }

  /** Returns the calls of about the last hour, and the newest levels. */
  usage(seconds: number): SubjectUsage {
    const { cpu_millis: cpu, memory_mb: memory, instances } = this.#levels;
    return {
      ...this.#recent.usage(seconds, this.counted),
      cpu_millis: cpu ?? null,
      memory_mb: memory ?? null,
      ...(instances === undefined ? {} : { instances }),
    };
  }

  read(of: Resolution, last: number, points: number): HistoryAnswer['series'] {
    return Object.fromEntries([...this.#rows].map(([name, row]) => [name, row.read(of, last, points)]));
  }

  #row(name: string): SeriesHistory {
    let row = this.#rows.get(name);
    if (row === undefined) {
      row = new SeriesHistory();
      this.#rows.set(name, row);
    }
    return row;
  }
}

/** The position of a resolution, and the counts at the beginning of its current slot. */
class ResolutionStep {
  slot = -1;
  readonly #seconds: number;
  #before: CountedCalls;
  #last: CountedCalls;

  constructor(resolution: Resolution, counted: CountedCalls) {
    this.#seconds = STEPS[resolution].seconds;
    this.#before = counted;
    this.#last = counted;
  }

  addSample(seconds: number, calls: CountedCalls): Levels {
    const slot = Math.floor(seconds / this.#seconds);
    if (slot !== this.slot) this.#before = this.#last;
    this.slot = slot;
    this.#last = calls;
    const added = between(this.#before, calls);
    return {
      calls: sumOf(added.buckets),
      errors: added.errors,
      p50_ms: quantile(added, 0.5) * 1000,
      p99_ms: quantile(added, 0.99) * 1000,
    };
  }
}

function nothing(points: number): HistoryAnswer['series'] {
  return Object.fromEntries(CALL_SERIES.map(name => [name, new Array<null>(points).fill(null)]));
}

/**
 * The subject of a history: an agent, a function by its key, or null.
 * Null is the whole service with its levels.
 */
export type HistorySubject = { readonly kind: 'agent' | 'function'; readonly key: string } | null;

/** The history of a replica, or the merged history of several. */
export interface NodesHistory extends HistoryAnswer {
  /** Ids of the replicas whose numbers are included. */
  readonly nodes: readonly string[];
  /** Live replicas that did not answer: their numbers are missing. */
  readonly silent_nodes: readonly string[];
}

/** Access to the other replicas. */
export interface HistoryOfOthers {
  readonly living: () => readonly { readonly id: string; readonly address: string }[];
  /** Reads JSON from a replica. Rejects when the replica does not answer soon. */
  readonly read: (address: string, path: string) => Promise<unknown>;
}

export interface HistoryOfNodesOptions {
  readonly nodeId: string;
  readonly history: Pick<MetricsHistory, 'service' | 'calls'>;
  readonly others: HistoryOfOthers;
}

export const HISTORY_PATH = '/cluster/history';

/** Merges the histories of all replicas at each read. Every replica stores its own history only. */
export class HistoryOfNodes {
  readonly #options: HistoryOfNodesOptions;

  constructor(options: HistoryOfNodesOptions) {
    this.#options = options;
  }

  /**
   * Reads the history of `node`, or of all replicas when it is null. Returns null when no such replica is
   * alive.
   */
  async read(subject: HistorySubject, range: HistoryRange, node: string | null): Promise<NodesHistory | null> {
    const { nodeId, others } = this.#options;
    const asked = others.living().filter(({ id }) => node === null || node === id);
    const found = node === null || node === nodeId ? [{ id: nodeId, history: this.#localAnswer(subject, range) }] : [];
    if (found.length + asked.length === 0) return null;
    const silent: string[] = [];
    const path = `${HISTORY_PATH}?${new URLSearchParams({ range, ...subject })}`;
    await Promise.all(
      asked.map(async ({ id, address }) => {
        const history = await others.read(address, path).catch(() => null);
        if (isHistory(history)) found.push({ id, history });
        else silent.push(id);
      }),
    );
    const none = this.#localAnswer({ kind: 'agent', key: '' }, range);
    return {
      ...together(
        found.map(({ history }) => history),
        none,
      ),
      nodes: found.map(({ id }) => id).sort(),
      silent_nodes: silent.sort(),
    };
  }

  /** Answers another replica's request to `HISTORY_PATH`; null when the query is invalid. */
  answer(query: URLSearchParams): HistoryAnswer | null {
    const range = RANGES.find(known => known === query.get('range'));
    const kind = query.get('kind');
    const key = query.get('key');
    if (range === undefined) return null;
    if (kind === null) return this.#localAnswer(null, range);
    return key !== null && (kind === 'agent' || kind === 'function') ? this.#localAnswer({ kind, key }, range) : null;
  }

  #localAnswer(subject: HistorySubject, range: HistoryRange): HistoryAnswer {
    const { history } = this.#options;
    return subject === null ? history.service(range) : history.calls(subject.kind, subject.key, range);
  }
}

/**
 * Merges histories: adds up counts and levels, and takes the highest of percentiles.
 * The percentiles of several replicas together cannot be computed from their single percentiles.
 */
export function together(histories: readonly HistoryAnswer[], none: HistoryAnswer): HistoryAnswer {
  const [first = none] = histories;
  const { start, step_seconds: step } = first;
  const names = new Set(histories.flatMap(({ series }) => Object.keys(series)));
  const length = Math.max(0, ...Object.values(first.series).map(values => values.length));
  const series = [...names].map(name => {
    const add = name.endsWith('_ms') ? Math.max : (one: number, other: number) => Number((one + other).toPrecision(6));
    const merged = new Array<number | null>(length).fill(null);
    for (const history of histories) {
      // Clocks differ between replicas, and so do the times of their answers.
      const shift = Math.round((history.start - start) / step);
      for (const [at, value] of (history.series[name] ?? []).entries()) {
        const before = merged[at + shift];
        if (before === undefined || value === null) continue;
        merged[at + shift] = before === null ? value : add(before, value);
      }
    }
    return [name, merged] as const;
  });
  return { step_seconds: step, start, series: Object.fromEntries(series) };
}

function isHistory(value: unknown): value is HistoryAnswer {
  const { start, step_seconds: step, series } = (value ?? {}) as Partial<HistoryAnswer>;
  return (
    Number.isInteger(start) &&
    Number.isInteger(step) &&
    typeof series === 'object' &&
    Object.values(series).every(
      values => Array.isArray(values) && values.every(each => each === null || typeof each === 'number'),
    )
  );
}

import { type HistoryAnswer, type HistoryRange, type MetricsHistory, RANGES } from './history.ts';

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
    const found = node === null || node === nodeId ? [{ id: nodeId, history: this.#own(subject, range) }] : [];
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
    const none = this.#own({ kind: 'agent', key: '' }, range);
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
    if (kind === null) return this.#own(null, range);
    return key !== null && (kind === 'agent' || kind === 'function') ? this.#own({ kind, key }, range) : null;
  }

  #own(subject: HistorySubject, range: HistoryRange): HistoryAnswer {
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

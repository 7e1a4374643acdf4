import { type HistoryAnswer, type MetricsHistory, RANGES, type Range } from './history.ts';

/** Whose calls are asked for: an agent, a function by its key, or null, the whole service with all that is measured. */
export type HistorySubject = { readonly kind: 'agent' | 'function'; readonly key: string } | null;

/** The history of one replica, or of all of them as one. */
export interface NodesHistory extends HistoryAnswer {
  /** Whose numbers are in it. */
  readonly nodes: readonly string[];
  /** Replicas that live and did not answer: their numbers are missing. */
  readonly silent_nodes: readonly string[];
}

/** The other replicas. */
export interface HistoryOfOthers {
  readonly living: () => readonly { readonly id: string; readonly address: string }[];
  /** JSON; rejects when the replica does not answer soon. */
  readonly read: (address: string, path: string) => Promise<unknown>;
}

export interface HistoryOfNodesOptions {
  readonly nodeId: string;
  readonly history: Pick<MetricsHistory, 'service' | 'calls'>;
  readonly others: HistoryOfOthers;
}

export const HISTORY_PATH = '/cluster/history';

/** Every replica keeps the history of what happened on it; they are put together when somebody looks. */
export class HistoryOfNodes {
  readonly #options: HistoryOfNodesOptions;

  constructor(options: HistoryOfNodesOptions) {
    this.#options = options;
  }

  /** Of `node`, or of all when it is null. Null: no such replica lives. */
  async read(subject: HistorySubject, range: Range, node: string | null): Promise<NodesHistory | null> {
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

  /** What another replica asked for with `HISTORY_PATH`; null: nothing is there. */
  answer(query: URLSearchParams): HistoryAnswer | null {
    const range = RANGES.find(known => known === query.get('range'));
    const kind = query.get('kind');
    const key = query.get('key');
    if (range === undefined) return null;
    if (kind === null) return this.#own(null, range);
    return key !== null && (kind === 'agent' || kind === 'function') ? this.#own({ kind, key }, range) : null;
  }

  #own(subject: HistorySubject, range: Range): HistoryAnswer {
    const { history } = this.#options;
    return subject === null ? history.service(range) : history.calls(subject.kind, subject.key, range);
  }
}

/** Sums of numbers and of levels; of percentiles the highest, since calls of several replicas have none that could be told from theirs. */
export function together(histories: readonly HistoryAnswer[], none: HistoryAnswer): HistoryAnswer {
  const [first = none] = histories;
  const { start, step_seconds: step } = first;
  const names = new Set(histories.flatMap(({ series }) => Object.keys(series)));
  const length = Math.max(0, ...Object.values(first.series).map(values => values.length));
  const series = [...names].map(name => {
    const add = name.endsWith('_ms') ? Math.max : (one: number, other: number) => Number((one + other).toPrecision(6));
    const merged = new Array<number | null>(length).fill(null);
    for (const history of histories) {
      // Clocks differ, and so does the moment of the answers.
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

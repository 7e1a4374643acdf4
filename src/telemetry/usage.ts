import type { SubjectUsage, UsageKind } from './call-counts.ts';
import type { HistoryOfOthers, MetricsHistory } from './history.ts';

const KINDS: readonly UsageKind[] = ['agent', 'function'];

/** The usage on one replica, or on several. */
export interface NodesUsage {
  readonly usage: Readonly<Record<string, SubjectUsage>>;
  /** Ids of the replicas whose numbers are included. */
  readonly nodes: readonly string[];
  /** Live replicas that did not answer: their numbers are missing. */
  readonly silent_nodes: readonly string[];
}

export interface UsageOfNodesOptions {
  readonly nodeId: string;
  readonly history: Pick<MetricsHistory, 'usage'>;
  readonly others: HistoryOfOthers;
}

export const USAGE_PATH = '/cluster/usage';

/** Merges the usage on all replicas at each read. */
export class UsageOfNodes {
  readonly #options: UsageOfNodesOptions;

  constructor(options: UsageOfNodesOptions) {
    this.#options = options;
  }

  /** Reads the usage of a tenant's agents by id, or of its functions by name. */
  async read(kind: UsageKind, tenant: string): Promise<NodesUsage> {
    const { nodeId, history, others } = this.#options;
    const found = [{ id: nodeId, usage: history.usage(kind, tenant) }];
    const silent: string[] = [];
    const path = `${USAGE_PATH}?${new URLSearchParams({ kind, tenant })}`;
    await Promise.all(
      others.living().map(async ({ id, address }) => {
        const usage = await others.read(address, path).catch(() => null);
        if (isUsage(usage)) found.push({ id, usage });
        else silent.push(id);
      }),
    );
    return {
      usage: sumOfUsage(found.map(({ usage }) => usage)),
      nodes: found.map(({ id }) => id).sort(),
      silent_nodes: silent.sort(),
    };
  }

  /** Answers another replica's request to `USAGE_PATH`; null when the query is invalid. */
  answer(query: URLSearchParams): Record<string, SubjectUsage> | null {
    const kind = KINDS.find(known => known === query.get('kind'));
    const tenant = query.get('tenant');
    return kind === undefined || tenant === null ? null : this.#options.history.usage(kind, tenant);
  }
}

/** Adds up the usage on several replicas. The percentile is that of the slowest replica. */
function sumOfUsage(all: readonly Readonly<Record<string, SubjectUsage>>[]): Record<string, SubjectUsage> {
  const sums = new Map<string, SubjectUsage>();
  for (const [key, one] of all.flatMap(usage => Object.entries(usage))) {
    const other = sums.get(key);
    sums.set(key, other === undefined ? one : together(one, other));
  }
  return Object.fromEntries(sums);
}

function together(one: SubjectUsage, other: SubjectUsage): SubjectUsage {
  const instances = one.instances ?? other.instances;
  return {
    calls: one.calls + other.calls,
    errors: one.errors + other.errors,
    p99_ms: merged(Math.max, one.p99_ms, other.p99_ms),
    cpu_millis: merged(add, one.cpu_millis, other.cpu_millis),
    memory_mb: merged(add, one.memory_mb, other.memory_mb),
    ...(instances === undefined ? {} : { instances: (one.instances ?? 0) + (other.instances ?? 0) }),
  };
}

const add = (one: number, other: number) => one + other;

function merged(merge: (one: number, other: number) => number, one: number | null, other: number | null) {
  return one === null || other === null ? (one ?? other) : merge(one, other);
}

function isUsage(value: unknown): value is Record<string, SubjectUsage> {
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.values(value).every(each => Number.isInteger((each as Partial<SubjectUsage> | null)?.calls))
  );
}

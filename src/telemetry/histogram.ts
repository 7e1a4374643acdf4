import type { Metric, Registry } from 'prom-client';

/** Records observations for one set of label values. */
export interface Observer {
  observe(seconds: number): void;
  /** Current counts by bucket; the last bucket counts values above the highest bound. */
  readonly counts: readonly number[];
}

interface Definition {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
  readonly buckets: readonly number[];
}

/**
 * A histogram for the path of every call. Labels are bound once, and an observation adds three numbers.
 * Prom-client's own histogram looks up and checks labels at each observation, which takes 0.4 µs. Each call
 * has two.
 */
export class FastHistogram {
  readonly #definition: Definition;
  readonly #series = new Map<string, LabelledHistogram>();

  constructor(definition: Definition, registry: Registry) {
    this.#definition = definition;
    const { name, help } = definition;
    // A registry uses two members of a metric: its name, and its values at the scrape.
    const metric = {
      name,
      help,
      type: 'histogram',
      get: async () => ({ name, help, type: 'histogram', values: this.#values() }),
    };
    registry.registerMetric(metric as unknown as Metric);
  }

  /** Returns the observer of a set of label values. Call once per set and keep the result. */
  labels(...values: readonly string[]): Observer {
    const key = values.join('\0');
    let series = this.#series.get(key);
    if (series === undefined) {
      series = new LabelledHistogram(values, this.#definition.buckets);
      this.#series.set(key, series);
    }
    return series;
  }

  /** Removes the series for whose label values `isGone` returns true. */
  forget(isGone: (values: readonly string[]) => boolean): void {
    for (const [key, { values }] of this.#series) if (isGone(values)) this.#series.delete(key);
  }

  #values(): SampledValue[] {
    const { name, labelNames } = this.#definition;
    return [...this.#series.values()].flatMap(series => {
      const labels = Object.fromEntries(labelNames.map((label, at) => [label, series.values[at] ?? '']));
      const buckets = series
        .cumulative()
        .map(([le, value]) => ({ metricName: `${name}_bucket`, labels: { le, ...labels }, value }));
      return [
        ...buckets,
        { metricName: `${name}_sum`, labels, value: series.sum },
        { metricName: `${name}_count`, labels, value: series.count },
      ];
    });
  }
}

interface SampledValue {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

class LabelledHistogram implements Observer {
  readonly values: readonly string[];
  readonly #bounds: readonly number[];
  /** Counts per bound, and a last count for values above the highest bound. */
  readonly counts: number[];
  sum = 0;
  count = 0;

  constructor(values: readonly string[], bounds: readonly number[]) {
    this.values = values;
    this.#bounds = bounds;
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(seconds: number): void {
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && seconds > (bounds[at] as number)) at++;
    (this.counts[at] as number)++;
    this.sum += seconds;
    this.count++;
  }

  cumulative(): [le: string | number, count: number][] {
    let total = 0;
    return this.counts.map((count, at) => {
      total += count;
      return [this.#bounds[at] ?? '+Inf', total];
    });
  }
}

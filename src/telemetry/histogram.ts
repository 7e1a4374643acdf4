import type { Metric, Registry } from 'prom-client';

/** One set of label values. */
export interface Observer {
  observe(seconds: number): void;
  /** By bucket, the last: what is above. Of the moment when it is read. */
  readonly counts: readonly number[];
}

interface Definition {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
  readonly buckets: readonly number[];
}

/**
 * A histogram for the path of every call. Prom-client's own looks its labels up and checks them at each observation
 * (0.4 µs, and there are two for each call); here they are bound once, and an observation adds three numbers.
 */
export class FastHistogram {
  readonly #definition: Definition;
  readonly #series = new Map<string, Series>();

  constructor(definition: Definition, registry: Registry) {
    this.#definition = definition;
    const { name, help } = definition;
    // A registry asks two things of a metric: its name, and its values at the scrape.
    const metric = {
      name,
      help,
      type: 'histogram',
      get: async () => ({ name, help, type: 'histogram', values: this.#values() }),
    };
    registry.registerMetric(metric as unknown as Metric);
  }

  /** Ask once per set of label values and keep it. */
  labels(...values: readonly string[]): Observer {
    const key = values.join('\0');
    let series = this.#series.get(key);
    if (series === undefined) {
      series = new Series(values, this.#definition.buckets);
      this.#series.set(key, series);
    }
    return series;
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

class Series implements Observer {
  readonly values: readonly string[];
  readonly #bounds: readonly number[];
  /** One more than there are bounds: what is above the last. */
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

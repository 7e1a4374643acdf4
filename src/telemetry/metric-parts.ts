import type { Registry } from 'prom-client';
import { CALL_CODES } from '../core/codes.ts';
import { FastHistogram, type Observer } from './histogram.ts';
import { METRICS, type MetricDefinition, type MetricName } from './metric-table.ts';

/** Makes a histogram with the help, labels and buckets of the table. */
export function histogram(name: MetricName, registry: Registry): FastHistogram {
  const definition: MetricDefinition = METRICS[name];
  const { help, labels, buckets = [] } = definition;
  return new FastHistogram({ name, help, labelNames: Object.keys(labels), buckets }, registry);
}

/** Returns the options of a counter or gauge of the table. */
export function common(name: MetricName, registry: Registry) {
  const definition: MetricDefinition = METRICS[name];
  return { name, help: definition.help, labelNames: Object.keys(definition.labels), registers: [registry] };
}

/** Returns the value of `key`; `make` makes it at the first request. */
export function remembered<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

/** Outcomes with their own label. User code can send any other one. */
const OUTCOMES: ReadonlySet<string> = new Set([
  ...['ok', 'cancelled', 'internal', 'invalid_request', 'unauthenticated', 'permission_denied', 'not_found'],
  ...['already_exists', 'failed_precondition', 'resource_exhausted', 'unavailable', 'deadline_exceeded'],
  ...['execution_failed', '500', ...CALL_CODES.map(({ code }) => String(code))],
]);

/** Returns the label of an outcome; `other` for all outcomes that the service does not know. */
export function outcomeLabel(outcome: string): string {
  return OUTCOMES.has(outcome) ? outcome : 'other';
}

/** Returns the counts of each outcome by the buckets of its histogram. */
export function outcomesOf(observers: ReadonlyMap<string, Observer>): (readonly [string, readonly number[]])[] {
  return [...observers].map(([outcome, { counts }]) => [outcome, counts]);
}

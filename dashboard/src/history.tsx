import { useEffect, useRef } from 'preact/hooks';
import { type AnswerOf, call, tenant } from './api.ts';
import type { ChartProps } from './chart.tsx';
import { ChartTime, range, zoom } from './chart-time.tsx';
import { lazy } from './lazy.tsx';
import { sample, useLoaded } from './live.ts';
import { Failure, Loading, Note } from './parts.tsx';

export type History = AnswerOf<'getMetricsHistory'>;

/** A chart, whose library is loaded with the first one. */
export const LazyChart = lazy<ChartProps>(
  () => import('./chart.tsx'),
  ({ title }) => <figure class="chart">{title}</figure>,
);

/**
 * Reads the history of an agent, a function or the service, and reads it again with each new point. Until
 * the history of another range is read, it returns the one before.
 */
export function useHistory(of: { readonly agent?: string; readonly function?: string; readonly node?: string } = {}) {
  const subject = JSON.stringify(of);
  const { value, error, reload } = useLoaded<History>(`history ${range.value} ${subject}`, signal =>
    call('getMetricsHistory', { query: { range: range.value, ...of }, signal }),
  );
  const at = sample.value?.at ?? null;
  // Reads the history again when the newest point changes.
  useEffect(() => {
    if (at !== null) reload();
  }, [at]);
  const key = `${subject}|${tenant.value}`;
  const before = useRef<{ readonly key: string; readonly value: History } | null>(null);
  if (value !== undefined) before.current = { key, value };
  const shown = before.current?.key === key ? before.current.value : undefined;
  // A part that is older than the history would show nothing.
  const start = shown?.start ?? 0;
  useEffect(() => {
    if (zoom.value !== null && zoom.value.to <= start) zoom.value = null;
  }, [start]);
  return { value: shown, error };
}

/** A note that names the replicas behind the numbers, if there are several. */
export function OfNodes({ history: { nodes, silent_nodes: silent } }: { readonly history: History }) {
  if (nodes.length + silent.length < 2) return null;
  return (
    <Note>
      {nodes.length > 1 ? `Sums of ${nodes.length} replicas; p50 and p99 are those of the slowest replica. ` : ''}
      {silent.length > 0 ? `Without ${silent.join(', ')}, which did not answer.` : ''}
    </Note>
  );
}

/** Charts of calls and latency, and of instances for a function. */
export function CallCharts({ of }: { readonly of: { readonly agent?: string; readonly function?: string } }) {
  const { value, error } = useHistory(of);
  return (
    <>
      <div class="filters">
        <ChartTime />
      </div>
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <>
          <CallLines history={value} />
          <OfNodes history={value} />
        </>
      )}
    </>
  );
}

export function CallLines({ history }: { readonly history: History }) {
  const { start, step_seconds: step, series } = history;
  const perMinute = (values: readonly (number | null)[] = []) =>
    values.map(value => (value === null ? null : (value * 60) / step));
  return (
    <div class="charts">
      <LazyChart
        title="Calls per minute"
        unit=""
        start={start}
        step={step}
        lines={[
          { name: 'calls', values: perMinute(series.calls), colour: 'line-1' },
          { name: 'errors', values: perMinute(series.errors), colour: 'bad' },
        ]}
      />
      <LazyChart
        title="Latency"
        unit="ms"
        start={start}
        step={step}
        lines={[
          { name: 'p50', values: series.p50_ms ?? [], colour: 'line-1' },
          { name: 'p99', values: series.p99_ms ?? [], colour: 'line-3' },
        ]}
      />
      {series.memory_mb === undefined || series.agents !== undefined ? null : (
        <>
          <LazyChart
            title="CPU"
            unit="millicores"
            start={start}
            step={step}
            lines={[{ name: 'used', values: series.cpu_millis ?? [], colour: 'line-1' }]}
          />
          <LazyChart
            title="Memory"
            unit="MB"
            start={start}
            step={step}
            lines={[{ name: 'used', values: series.memory_mb, colour: 'line-1' }]}
          />
        </>
      )}
      {series.instances === undefined ? null : (
        <LazyChart
          title="Instances"
          unit=""
          start={start}
          step={step}
          lines={[
            { name: 'all', values: series.instances, colour: 'line-3' },
            { name: 'ready', values: series.instances_ready ?? [], colour: 'line-2' },
          ]}
        />
      )}
    </div>
  );
}

import { useEffect } from 'preact/hooks';
import { ask } from '../api.ts';
import { Bars } from '../bars.tsx';
import { sample, useLoaded } from '../live.ts';
import { Failure, Loading, Note, Panel, short, Table, Title } from '../parts.tsx';

interface Stage {
  readonly name: string;
  readonly count: number;
  readonly sum: number;
  /** Numbers of starts up to a duration, the shortest first. */
  readonly buckets: readonly { readonly upTo: number; readonly count: number }[];
}

const METRICS = [
  { name: 'rookery_function_cold_start_seconds', label: 'stage', title: (stage: string) => `function: ${stage}` },
  { name: 'rookery_create_seconds', label: 'driver', title: (driver: string) => `sandbox: ${driver}` },
] as const;

/** Returns the histograms of starts in a text of Prometheus. */
export function stagesOf(text: string): readonly Stage[] {
  return METRICS.flatMap(({ name, label, title }) => {
    const found = new Map<string, { count: number; sum: number; buckets: { upTo: number; count: number }[] }>();
    for (const line of text.split('\n')) {
      const match = new RegExp(`^${name}_(bucket|sum|count)\\{(.*)\\} (\\S+)$`).exec(line);
      if (match === null) continue;
      const labels = new Map(
        [...(match[2] ?? '').matchAll(/(\w+)="([^"]*)"/g)].map(([, key = '', value = '']) => [key, value]),
      );
      if (labels.get('outcome') === 'failed') continue;
      const key = title(labels.get(label) ?? '');
      const stage = found.get(key) ?? { count: 0, sum: 0, buckets: [] };
      found.set(key, stage);
      const value = Number(match[3]);
      if (match[1] === 'sum') stage.sum += value;
      else if (match[1] === 'count') stage.count += value;
      else
        stage.buckets.push({
          upTo: labels.get('le') === '+Inf' ? Number.POSITIVE_INFINITY : Number(labels.get('le')),
          count: value,
        });
    }
    return [...found].map(([key, stage]) => ({ name: key, ...stage }));
  });
}

function quantileMs({ buckets, count }: Stage, share: number): number | null {
  if (count === 0) return null;
  const bucket = buckets.find(each => each.count >= count * share);
  return bucket === undefined || bucket.upTo === Number.POSITIVE_INFINITY ? null : bucket.upTo * 1000;
}

export function ColdStartsView() {
  const { value, error, reload } = useLoaded('cold starts', async signal =>
    stagesOf(await (await ask('/metrics', { signal })).text()),
  );
  const at = sample.value?.at ?? null;
  // Reads the metrics again when the newest point changes.
  useEffect(() => {
    if (at !== null) reload();
  }, [at]);
  return (
    <>
      <Title text="Cold starts" />
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <>
          <Table
            label="Stages of starts"
            rows={value}
            keyOf={stage => stage.name}
            empty="The service has started no instance yet. “rookery agent create” starts one."
            columns={[
              { title: 'Stage', cell: stage => stage.name },
              { title: 'Starts', cell: stage => stage.count, isNumber: true },
              {
                title: 'Mean',
                cell: stage => short(stage.count === 0 ? null : (stage.sum / stage.count) * 1000, ' ms'),
                isNumber: true,
              },
              { title: 'p50 at most', cell: stage => short(quantileMs(stage, 0.5), ' ms'), isNumber: true },
              { title: 'p99 at most', cell: stage => short(quantileMs(stage, 0.99), ' ms'), isNumber: true },
            ]}
          />
          {value
            .filter(stage => stage.count > 0)
            .map(stage => (
              <Panel key={stage.name} title={stage.name}>
                <Counts stage={stage} />
              </Panel>
            ))}
        </>
      )}
      <Note>
        Starts on the replica that answers, since it started. The Call tab of a function shows the stages of one call.
      </Note>
    </>
  );
}

function Counts({ stage }: { readonly stage: Stage }) {
  const rows = stage.buckets
    .map((bucket, at) => ({ upTo: bucket.upTo, count: bucket.count - (stage.buckets[at - 1]?.count ?? 0) }))
    .filter(row => row.count > 0);
  const most = Math.max(1, ...rows.map(row => row.count));
  const name = (upTo: number) => (upTo === Number.POSITIVE_INFINITY ? 'longer' : `≤ ${upTo * 1000} ms`);
  return (
    <Bars
      label={rows.map(row => `${name(row.upTo)}: ${row.count}`).join(', ')}
      bars={rows.map(row => ({
        name: name(row.upTo),
        from: 0,
        length: row.count / most,
        text: String(row.count),
        tone: 'stage-0',
      }))}
    />
  );
}

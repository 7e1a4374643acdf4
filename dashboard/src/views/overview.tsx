import { useState } from 'preact/hooks';
import { call, session } from '../api.ts';
import { ChartTime } from '../chart-time.tsx';
import { CallLines, type History, LazyChart, OfNodes, useHistory } from '../history.tsx';
import { useLoaded } from '../live.ts';
import { agentStatus, Failure, Input, Loading, Note, Panel, short, Title } from '../parts.tsx';
import { AGENTS, type Agent } from './agents.tsx';
import { EventList } from './events.tsx';

export function OverviewView() {
  return (
    <>
      <Title text="Overview" />
      {session.value?.sees_service ? <Service /> : <Own />}
      <Panel title="Recent events" actions={<a href="#/events">All events</a>}>
        <EventList most={12} />
      </Panel>
    </>
  );
}

function Service() {
  const [node, setNode] = useState('');
  const { value, error } = useHistory(node === '' ? {} : { node });
  const all = useLoaded('cluster', async signal => (await call('getCluster', { signal })).nodes.map(({ id }) => id));
  return (
    <>
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <>
          <Tiles history={value} />
          <div class="filters">
            <ChartTime />
            {(all.value?.length ?? 0) > 1 || node !== '' ? (
              <Input label="Replica" value={node} onInput={setNode} options={['', ...(all.value ?? [])]} />
            ) : null}
          </div>
          <OfNodes history={value} />
          <CallLines history={value} />
          <MachineLines history={value} />
        </>
      )}
    </>
  );
}

function Tiles({ history: { series, step_seconds: step } }: { readonly history: History }) {
  const last = (name: string) => series[name]?.findLast(value => value !== null) ?? null;
  // The newest step is incomplete; the steps before it are complete.
  const recent = (name: string, steps: number) =>
    (series[name] ?? []).slice(-steps).reduce<number>((sum, value) => sum + (value ?? 0), 0);
  const steps = Math.max(1, Math.round(60 / step));
  const minutes = (steps * step) / 60;
  const share = (used: string, of: string) => {
    const all = last(of);
    return all ? `${Math.round(((last(used) ?? 0) / all) * 100)} %` : '–';
  };
  const errors = recent('errors', steps);
  return (
    <ul class="tiles">
      <Tile
        name={minutes === 1 ? 'Calls, last minute' : `Calls, last ${minutes} minutes`}
        value={short(recent('calls', steps))}
      />
      <Tile name="Errors" value={short(errors)} tone={errors > 0 ? 'bad' : ''} />
      <Tile name="p50" value={short(last('p50_ms'), ' ms')} />
      <Tile name="p99" value={short(last('p99_ms'), ' ms')} />
      <Tile name="Open calls" value={short(last('open_calls'))} />
      <Tile name="Agents running" value={short(last('agents'))} href="#/agents" />
      <Tile
        name="Function instances"
        value={short(last('function_instances_ready'))}
        more={`${short(last('function_instances_starting'))} starting, ${short(last('function_instances_stopping'))} stopping`}
        href="#/functions"
      />
      <Tile
        name="Jobs running"
        value={short(last('jobs_running'))}
        more={`${short(last('jobs_waiting'))} waiting`}
        href="#/jobs"
      />
      <Tile
        name="CPU"
        value={share('cpu_millis', 'machine_cpu_millis')}
        more={`${share('promised_cpu_millis', 'machine_cpu_millis')} reserved`}
      />
      <Tile
        name="Memory"
        value={share('memory_mb', 'machine_memory_mb')}
        more={`${share('promised_memory_mb', 'machine_memory_mb')} reserved`}
      />
    </ul>
  );
}

function Tile(props: {
  readonly name: string;
  readonly value: string;
  readonly more?: string;
  readonly tone?: string;
  readonly href?: string;
}) {
  const { name, value, more, tone = '', href } = props;
  return (
    <li>
      <span class="tile-name">{href === undefined ? name : <a href={href}>{name}</a>}</span>
      <span class={`tile-value ${tone}`}>{value}</span>
      <span class="tile-more">{more ?? ''}</span>
    </li>
  );
}

function MachineLines({ history: { series, start, step_seconds: step } }: { readonly history: History }) {
  const line = (name: string, key: string, colour: string, factor = 1, isDashed = false) => ({
    name,
    colour,
    isDashed,
    values: (series[key] ?? []).map(value => (value === null ? null : value * factor)),
  });
  const common = { start, step };
  return (
    <div class="charts">
      <LazyChart
        {...common}
        title="Processors"
        unit="cores"
        lines={[
          line('machine', 'cpu_millis', 'line-1', 0.001),
          line('service', 'service_cpu_millis', 'line-2', 0.001),
          line('reserved', 'promised_cpu_millis', 'line-3', 0.001, true),
        ]}
      />
      <LazyChart
        {...common}
        title="Memory"
        unit="GiB"
        lines={[
          line('machine', 'memory_mb', 'line-1', 1 / 1024),
          line('service', 'service_memory_mb', 'line-2', 1 / 1024),
          line('reserved', 'promised_memory_mb', 'line-3', 1 / 1024, true),
        ]}
      />
      <LazyChart
        {...common}
        title="Instances"
        unit=""
        lines={[
          line('agents', 'agents', 'line-1'),
          line('functions, ready', 'function_instances_ready', 'line-2'),
          line('functions, starting', 'function_instances_starting', 'line-3'),
        ]}
      />
      <LazyChart
        {...common}
        title="Jobs and open calls"
        unit=""
        lines={[
          line('jobs running', 'jobs_running', 'line-1'),
          line('jobs waiting', 'jobs_waiting', 'line-3'),
          line('open calls', 'open_calls', 'line-2'),
        ]}
      />
    </div>
  );
}

/** Overview of a tenant that may not see the numbers of the whole service. */
function Own() {
  const { value, error } = useLoaded(
    'own',
    async signal => {
      const agents: Agent[] = [];
      for await (const some of AGENTS.all(signal)) agents.push(...some);
      return { agents, jobs: await call('listJobs', { signal }) };
    },
    () => true,
  );
  if (value === undefined) return error === '' ? <Loading /> : <Failure text={error} />;
  const agents = (status: string) => short(value.agents.filter(agent => agentStatus(agent) === status).length);
  const jobs = (status: string) => short(value.jobs.filter(job => job.status === status).length);
  return (
    <>
      <ul class="tiles">
        <Tile name="Agents running" value={agents('RUNNING')} href="#/agents" />
        <Tile name="Agents failed" value={agents('FAILED')} />
        <Tile name="Agents without code" value={agents('RUNNING (code not loaded)')} />
        <Tile name="Jobs running" value={jobs('RUNNING')} href="#/jobs" />
        <Tile name="Jobs waiting" value={jobs('PENDING')} />
      </ul>
      <Note>Tenants in the setting metrics.tenants also see the numbers of the whole service.</Note>
    </>
  );
}

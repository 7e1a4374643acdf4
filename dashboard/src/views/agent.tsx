import { useEffect, useRef, useState } from 'preact/hooks';
import { AGENT_RULES } from '../../../src/explain/agent.ts';
import { call, may, pathOf } from '../api.ts';
import { Explained, useFailedCalls } from '../explained.tsx';
import { CallCharts } from '../history.tsx';
import { lazy } from '../lazy.tsx';
import { sample, useLoaded } from '../live.ts';
import { LogFollower } from '../log.tsx';
import {
  Action,
  agentStatus,
  ago,
  bytes,
  Failure,
  Fields,
  Loading,
  Missing,
  moment,
  Note,
  Panel,
  Status,
  short,
  Table,
  Tabs,
  Title,
} from '../parts.tsx';
import { CreateWarnings } from './agent-create.tsx';
import type { Agent } from './agents.tsx';
import { CallPanel } from './call-panel.tsx';
import { CallList } from './calls.tsx';
import { OwnEvents } from './events.tsx';
import { Files } from './files.tsx';
import { Processes } from './processes.tsx';

const TABS = [
  ['', 'Record'],
  ['call', 'Call'],
  ['calls', 'Calls'],
  ['logs', 'Log'],
  ['terminal', 'Terminal'],
  ['files', 'Files'],
  ['processes', 'Processes'],
  ['ports', 'Ports'],
] as const;

export function AgentView({ id, part }: { readonly id: string; readonly part: string }) {
  const { value, error, reload } = useLoaded(
    `agent ${id}`,
    async ends => (await call('getAgent', { params: { instanceId: id }, signal: ends })).instance as Agent,
    event => event.instance_id === id,
  );
  if (value === undefined) return <Missing title={id} error={error} />;
  const base = `#/agents/${id}`;
  const tabs = TABS.filter(([path]) => (path === 'call' ? may('invoke') : path !== 'terminal' || may('write')));
  return (
    <>
      <Title text={`${value.namespace}/${value.name}`}>
        <Status text={agentStatus(value)} />
        {may('write') ? (
          <>
            <StateAction agent={value} changed={reload} />
            <Action
              text="Restart"
              work={async () => {
                await call('restartAgent', { params: { instanceId: id } });
                reload();
              }}
            />
            <Action
              text="Delete"
              isDangerous
              sure={`Delete the agent ${value.namespace}/${value.name}, its sandbox and its log?`}
              work={async () => {
                await call('deleteAgent', { params: { instanceId: id } });
                location.hash = '#/agents';
              }}
            />
          </>
        ) : null}
      </Title>
      {/* A later read may have failed. */}
      <Failure text={error} />
      <Failure text={value.status_reason ?? ''} />
      <Failure text={value.load_error ?? ''} />
      <CreateWarnings id={id} />
      <Tabs base={base} tabs={tabs} now={part} />
      <Part agent={value} part={part} />
    </>
  );
}

/** Button of an agent by its state: the label, and the operation. */
const STATE_ACTIONS = {
  RUNNING: ['Pause', 'pauseAgent'],
  PAUSED: ['Resume', 'resumeAgent'],
  SLEEPING: ['Wake', 'wakeAgent'],
} as const;

function StateAction({ agent, changed }: { readonly agent: Agent; readonly changed: () => void }) {
  const { status } = agent;
  if (!(status in STATE_ACTIONS)) return null;
  const [text, operation] = STATE_ACTIONS[status as keyof typeof STATE_ACTIONS];
  const params = { instanceId: agent.instance_id };
  return (
    <Action
      key={status}
      text={text}
      work={async () => {
        await call(operation, { params });
        changed();
      }}
    />
  );
}

function Part({ agent, part }: { readonly agent: Agent; readonly part: string }) {
  const id = agent.instance_id;
  switch (part) {
    case 'call':
      return <CallPanel path={pathOf('invokeAgent', { params: { instanceId: id } })} target={{ kind: 'agent', id }} />;
    case 'calls':
      return <CallList of={{ agent: id }} />;
    case 'logs':
      return (
        // The log ends with a run of the agent, and the next run continues it. The number of restarts grows
        // before the next run has a log.
        <LogFollower
          key={agent.start_time}
          path={`${pathOf('agentLogs', { params: { instanceId: id } })}?tail=1000&follow=true`}
          label="Log"
        />
      );
    case 'terminal':
      return agent.status === 'RUNNING' ? (
        <LazyShell id={id} />
      ) : (
        <Note>The agent does not run, so it has no terminal.</Note>
      );
    case 'files':
      return agent.status === 'RUNNING' ? (
        <Files id={id} start={agent.codePath || agent.rootfs.workspace || '/'} />
      ) : (
        <Note>The agent does not run, so its files cannot be read.</Note>
      );
    case 'processes':
      return agent.status === 'RUNNING' ? (
        <Processes id={id} />
      ) : (
        <Note>The agent does not run, so its processes cannot be listed.</Note>
      );
    case 'ports':
      return <Ports agent={agent} />;
    default:
      return <Record agent={agent} />;
  }
}

function Record({ agent }: { readonly agent: Agent }) {
  const { rootfs } = agent;
  const id = agent.instance_id;
  const failed = useFailedCalls({ agent: id });
  return (
    <>
      <Explained rules={AGENT_RULES} facts={{ agent, failed, nowMs: Date.now() }} />
      <Panel title="Calls">
        <CallCharts of={{ agent: id }} />
      </Panel>
      <div class="columns">
        <Panel title="Record">
          <Fields
            rows={[
              ['Instance ID', <code key="id">{id}</code>],
              ['Runtime', agent.runtime],
              ['Handler', agent.handler],
              ['Code', agent.codePath],
              ['Function', agent.urn],
              [
                'Started',
                agent.start_time === null ? '' : `${moment(agent.start_time)} (${ago(agent.start_time)} ago)`,
              ],
              [
                'Ends',
                agent.expires_at &&
                  `${moment(agent.expires_at)}${agent.on_expiry === 'pause' ? ', is paused then' : ''}`,
              ],
              [
                'Labels',
                Object.entries(agent.labels ?? {})
                  .map(([name, label]) => `${name}=${label}`)
                  .join(', '),
              ],
              ['Template', agent.template],
              ['Restarts', agent.restarts],
              ['Restart policy', agent.restart_policy?.policy],
              ['Starts again', agent.restart_at],
              ['Resources', `${agent.resources.cpu} millicores, ${agent.resources.memory} MB`],
              ['Node', agent.node_id],
            ]}
          />
        </Panel>
        <Panel title="Sandbox">
          <Usage agent={agent} />
          <Fields
            rows={[
              ['Type', agent.sandbox_type || 'default'],
              ['Sandbox ID', agent.sandbox_id],
              ['Address', agent.sandbox_ip],
              ['Isolation', agent.isolation.join(', ')],
              ['Files', rootfs.type === 'image' ? rootfs.imageurl : 'files of the host'],
              ['User', rootfs.user],
              ['Workspace', rootfs.workspace],
              ['Warnings', agent.warnings?.join(' ')],
            ]}
          />
        </Panel>
        <Panel title="Environment">
          <Fields
            rows={Object.entries(agent.env_vars).map(
              ([name, value]) => [name, typeof value === 'string' ? value : `the secret ${value.secret}`] as const,
            )}
          />
          {Object.keys(agent.env_vars).length === 0 ? <Note>The agent has no environment variables.</Note> : null}
        </Panel>
      </div>
      <Panel title="Mounts">
        <Table
          label="Mounts"
          rows={rootfs.mounts}
          keyOf={mount => mount.target}
          empty="The agent has no mounts."
          columns={[
            { title: 'Host', cell: mount => mount.source, isMono: true },
            { title: 'Sandbox', cell: mount => mount.target, isMono: true },
            { title: 'Access', cell: mount => (mount.readonly ? 'read only' : 'read and write') },
          ]}
        />
      </Panel>
      <OwnEvents of={{ agent: id }} />
    </>
  );
}

/** Current use of memory, CPU and processes, read again with each new point of the metrics. */
function Usage({ agent }: { readonly agent: Agent }) {
  const [cores, setCores] = useState<number | null>(null);
  const before = useRef<{ readonly atMs: number; readonly micros: number } | null>(null);
  const { value, reload } = useLoaded(`stats ${agent.instance_id} ${agent.status} ${agent.restarts}`, async ends => {
    if (agent.status !== 'RUNNING') return null;
    return await call('agentStats', { params: { instanceId: agent.instance_id }, signal: ends });
  });
  const at = sample.value?.at ?? null;
  // Reads the use again when the newest point changes.
  useEffect(() => {
    if (at !== null) reload();
  }, [at]);
  useEffect(() => {
    if (!value) return;
    const now = { atMs: performance.now(), micros: value.cpu_micros };
    const last = before.current;
    before.current = now;
    if (last !== null && now.micros >= last.micros)
      setCores((now.micros - last.micros) / 1000 / Math.max(1, now.atMs - last.atMs));
  }, [value]);
  if (!value) return null;
  return (
    <Fields
      rows={[
        ['Memory', `${bytes(value.memory_bytes)} of ${agent.resources.memory} MB`],
        [
          'Processor',
          `${short(cores === null ? null : cores * 1000)} of ${agent.resources.cpu} millicores; ${short(value.cpu_micros / 1e6, ' s')} in total`,
        ],
        ['Processes', value.processes],
      ]}
    />
  );
}

const LazyShell = lazy(
  () => import('../terminal.tsx'),
  () => <Loading />,
);

function Ports({ agent }: { readonly agent: Agent }) {
  const inside = (port: number) => `/serverless/v1/http/?instance=${agent.instance_id}&port=${port}`;
  return (
    <>
      <Table
        label="Ports"
        rows={agent.port_mappings}
        keyOf={port => `${port.protocol}:${port.container_port}`}
        empty="The agent has no published ports. “rookery agent create --publish” publishes one."
        columns={[
          { title: 'Sandbox', cell: port => `${port.protocol}:${port.container_port}`, isMono: true },
          { title: 'Address', cell: port => `${port.host_ip}:${port.host_port}`, isMono: true },
          {
            title: 'Through the service',
            cell: port => (port.protocol === 'tcp' ? <code>{inside(port.container_port)}</code> : ''),
          },
        ]}
      />
      {agent.expose === undefined ? null : (
        <Fields
          rows={[
            ['Exposed port', agent.expose.port],
            ['Access', agent.expose.access],
            ['Address', agent.expose.address && <code>{agent.expose.address}</code>],
            ['Path', <code key="path">{agent.expose.path}</code>],
          ]}
        />
      )}
      <Note>
        Open these addresses in a browser without a login here: browsers send cookies to every port of a host.
      </Note>
    </>
  );
}

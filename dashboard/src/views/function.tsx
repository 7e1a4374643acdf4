import { useState } from 'preact/hooks';
import { FUNCTION_RULES, isServed, ofVersion } from '../../../src/explain/function.ts';
import { call, may, pathOf } from '../api.ts';
import { Explained, useFailedCalls } from '../explained.tsx';
import { CallCharts } from '../history.tsx';
import { useLoaded } from '../live.ts';
import { LogFollower } from '../log.tsx';
import { Action, ago, Failure, Fields, Input, Missing, moment, Panel, Status, Table, Tabs, Title } from '../parts.tsx';
import { CallPanel } from './call-panel.tsx';
import { CallList } from './calls.tsx';
import { nameOf, OwnEvents } from './events.tsx';
import type { FunctionVersion } from './functions.tsx';
import { LATEST, VersionList } from './versions.tsx';

const TABS = [
  ['', 'Overview'],
  ['call', 'Call'],
  ['calls', 'Calls'],
  ['versions', 'Versions'],
  ['reserved', 'Reserved instances'],
  ['logs', 'Log'],
] as const;

export function FunctionView({ name, part }: { readonly name: string; readonly part: string }) {
  const [chosen, setChosen] = useState(LATEST);
  const { value, error, reload } = useLoaded(`function ${name}`, async signal => {
    const { functions } = (await call('listVersions', { params: { name }, signal })) as {
      functions: FunctionVersion[] | null;
    };
    return functions ?? [];
  });
  if (value === undefined) return <Missing title={name} error={error} />;
  const fn = value.find(version => version.versionNumber === chosen) ?? value[0];
  if (fn === undefined) return <Missing title={name} error={`there is no function ${name}`} />;
  const tabs = TABS.filter(([path]) => path !== 'call' || may('invoke'));
  return (
    <>
      <Title text={name}>
        {may('write') ? (
          <Action
            text="Delete"
            isDangerous
            sure={`Delete the function ${name} with all its versions? Its instances end.`}
            work={async () => {
              await call('deleteFunction', { params: { name } });
              location.hash = '#/functions';
            }}
          />
        ) : null}
      </Title>
      <div class="filters">
        <Input
          label="Version"
          value={fn.versionNumber}
          onInput={setChosen}
          options={value.map(version => version.versionNumber)}
        />
      </div>
      <Tabs base={`#/functions/${encodeURIComponent(name)}`} tabs={tabs} now={part} />
      <Part fn={fn} versions={value} part={part} reload={reload} />
    </>
  );
}

interface PartProps {
  readonly fn: FunctionVersion;
  readonly versions: readonly FunctionVersion[];
  readonly part: string;
  readonly reload: () => void;
}

function Part({ fn, versions, part, reload }: PartProps) {
  const urn = fn.functionVersionUrn;
  switch (part) {
    case 'call':
      return (
        <CallPanel
          key={urn}
          path={pathOf('invokeFunction', { params: { urn } })}
          target={{ kind: 'function', urn, name: fn.name, version: fn.versionNumber }}
          schema={fn.inputSchema}
        />
      );
    case 'calls':
      return <CallList of={{ function: fn.name }} />;
    case 'versions':
      return <VersionList fn={fn} versions={versions} reload={reload} />;
    case 'reserved':
      return <Reserved fn={fn} />;
    case 'logs':
      return (
        <LogFollower path={`${pathOf('readFunctionLogs', { params: { urn } })}?tail=500&follow=true`} label="Log" />
      );
    default:
      return <FunctionOverview fn={fn} />;
  }
}

function FunctionOverview({ fn }: { readonly fn: FunctionVersion }) {
  const isOwn = (event: { readonly function?: string }) =>
    event.function !== undefined && nameOf(event.function) === fn.name;
  const urn = fn.functionVersionUrn;
  const served = useLoaded(
    `instances ${urn}`,
    async signal => await call('listFunctionInstances', { params: { urn }, signal }),
    isOwn,
  );
  const known = isServed({ fn }) ? served.value : { instances: [] };
  const failed = ofVersion(useFailedCalls({ function: urn }), fn);
  return (
    <>
      {known === undefined ? null : (
        <Explained rules={FUNCTION_RULES} facts={{ fn, served: known, failed, nowMs: Date.now() }} />
      )}
      <Panel title="Calls, all versions">
        <CallCharts of={{ function: fn.name }} />
      </Panel>
      <Panel title="Instances">
        <Failure text={served.error} />
        <Table
          label="Instances"
          rows={served.value?.instances ?? []}
          keyOf={instance => instance.instance_id}
          empty="No instance runs. The next call starts one."
          columns={[
            { title: 'ID', cell: instance => instance.instance_id, isMono: true },
            { title: 'Status', cell: instance => <Status text={instance.status} /> },
            { title: 'Running calls', cell: instance => instance.running_calls, isNumber: true },
            { title: 'Label', cell: instance => instance.label, isWide: true },
            { title: 'Millicores', cell: instance => instance.cpu, isNumber: true, isWide: true },
            { title: 'MB', cell: instance => instance.memory, isNumber: true, isWide: true },
            { title: 'Age', cell: instance => ago(instance.start_time), isNumber: true },
          ]}
        />
      </Panel>
      <Panel title="Version">
        <Fields
          rows={[
            ['URN', <code key="urn">{urn}</code>],
            ['Revision', fn.revisionId],
            ['Kind', fn.kind],
            ['Runtime', fn.runtime],
            ['Handler', fn.handler],
            ['Code', `${fn.storageType} ${fn.codePath}`],
            ['Resources', `${fn.cpu} millicores, ${fn.memory} MB`],
            ['Timeout', `${fn.timeout} s`],
            ['Instances', `${fn.minInstance} to ${fn.maxInstance}, ${fn.concurrentNum} calls each`],
            ['Description', fn.description],
            ['Changed', moment(fn.updateTime || fn.createTime)],
          ]}
        />
      </Panel>
      <OwnEvents of={{ function: fn.name }} />
    </>
  );
}

function Reserved({ fn }: { readonly fn: FunctionVersion }) {
  const query = { funcName: fn.name, version: fn.versionNumber };
  const [label, setLabel] = useState('');
  const [least, setLeast] = useState('1');
  const [most, setMost] = useState('1');
  const { value, error, reload } = useLoaded(`reserved ${fn.functionVersionUrn}`, async signal => {
    const answer = await call('listReservedInstances', { query, signal });
    return (answer as Extract<typeof answer, { results: unknown }>).results;
  });
  const rows = (value ?? []).flatMap(({ instanceLabel, instanceConfigInfos }) =>
    instanceConfigInfos.map(info => ({ instanceLabel, ...info })),
  );
  return (
    <>
      <Failure text={error} />
      <Table
        label="Reserved instances"
        rows={rows}
        keyOf={row => `${row.instanceLabel}/${row.clusterId}`}
        empty="This version has no reserved instances. “rookery function reserve” makes them."
        columns={[
          { title: 'Label', cell: row => row.instanceLabel || '(none)' },
          { title: 'Cluster', cell: row => row.clusterId },
          { title: 'At least', cell: row => row.minInstance, isNumber: true },
          { title: 'At most', cell: row => row.maxInstance, isNumber: true },
          {
            title: '',
            cell: row =>
              may('write') ? (
                <Action
                  key={`${row.instanceLabel}/${row.clusterId}`}
                  text="Remove"
                  sure={`Remove the reserved instances of the label “${row.instanceLabel}”?`}
                  work={async () => {
                    await call('deleteReservedInstances', { query: { ...query, instanceLabel: row.instanceLabel } });
                    reload();
                  }}
                />
              ) : null,
          },
        ]}
      />
      {may('write') ? (
        <Panel title="Reserve">
          <div class="filters">
            <Input label="Label" value={label} onInput={setLabel} />
            <Input label="At least" value={least} onInput={setLeast} type="number" />
            <Input label="At most" value={most} onInput={setMost} type="number" />
            <Action
              text="Reserve"
              isMain
              work={async () => {
                await call('createReservedInstances', {
                  body: {
                    ...query,
                    instanceLabel: label,
                    // Without a clusterId the service uses its first cluster.
                    instanceConfigInfos: [{ minInstance: Number(least), maxInstance: Number(most) }],
                  },
                });
                reload();
              }}
            />
          </div>
        </Panel>
      ) : null}
    </>
  );
}

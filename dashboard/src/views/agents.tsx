import { useMemo, useState } from 'preact/hooks';
import { type AnswerOf, call, may } from '../api.ts';
import { type ListSource, searchText, useList } from '../list.ts';
import { agentStatus, ago, brief, Failure, Input, Loading, Shown, Status, Table, Title } from '../parts.tsx';
import { usageColumns, useUsage } from '../usage.ts';

export type Agent = AnswerOf<'getAgent'>['instance'];

const PAGE = 200;

export const AGENTS: ListSource<Agent> = {
  async *all(signal) {
    let cursor: string | undefined;
    do {
      const page = await call('listAgents', { query: { limit: PAGE, cursor }, signal });
      yield page.instances as Agent[];
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
  },
  one: async (instanceId, signal) => (await call('getAgent', { params: { instanceId }, signal })).instance as Agent,
  idOf: agent => agent.instance_id,
  about: event => (event.owner === 'agent' ? event.instance_id : undefined),
};

const { compare } = new Intl.Collator();
export const agentName = ({ namespace, name }: Agent) => `${namespace}/${name}`;

/** Returns the address of the exposed port, or of the first published one. */
function addressOf({ expose, port_mappings: [port] }: Agent): string {
  return expose?.address ?? (port === undefined ? '' : `${port.host_ip}:${port.host_port}`);
}

function reasonOf({ status_reason: reason, load_error: loadError }: Agent): string {
  return brief(reason ?? loadError ?? '');
}

export function AgentsView() {
  const [text, setText] = useState('');
  const [status, setStatus] = useState('');
  const { value, error } = useList(AGENTS);
  const usage = useUsage('agents');
  const sorted = useMemo(
    () => value?.toSorted((one, other) => compare(agentName(one), agentName(other))) ?? [],
    [value],
  );
  const wanted = text.toLowerCase();
  const rows = useMemo(
    () =>
      sorted.filter(
        agent =>
          (status === '' || agent.status === status) &&
          (wanted === '' ||
            searchText(agent, ({ runtime, instance_id: id }) => `${agentName(agent)} ${runtime} ${id}`).includes(
              wanted,
            )),
      ),
    [sorted, status, wanted],
  );
  return (
    <>
      <Title text="Agents">
        {may('write') ? (
          <a class="button main" href="#/agents/new">
            New agent
          </a>
        ) : null}
      </Title>
      <div class="filters">
        <Input label="Search" value={text} onInput={setText} type="search" />
        <Input
          label="Status"
          value={status}
          onInput={setStatus}
          options={['', 'RUNNING', 'PAUSED', 'SLEEPING', 'CREATING', 'STOPPING', 'FAILED']}
        />
        <Shown rows={rows} of={value} />
      </div>
      <Failure text={error} />
      <Failure text={usage.error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <Table
          label="Agents"
          rows={rows}
          keyOf={agent => agent.instance_id}
          empty={
            value.length === 0
              ? 'There is no agent yet. Run “rookery agent create” to create one.'
              : 'No matching agents.'
          }
          columns={[
            {
              title: 'Name',
              cell: agent => (
                <a href={`#/agents/${agent.instance_id}`}>
                  {agent.namespace}/{agent.name}
                </a>
              ),
            },
            { title: 'Status', cell: agent => <Status text={agentStatus(agent)} /> },
            { title: 'Runtime', cell: agent => agent.runtime, isWide: true },
            ...usageColumns<Agent>(
              agent => usage.value?.[agent.instance_id],
              ({ resources }) => ({ cpuMillis: resources.cpu, memoryMb: resources.memory }),
            ),
            ...(rows.some(addressOf) ? [{ title: 'Address', cell: addressOf, isMono: true, isWide: true }] : []),
            { title: 'Restarts', cell: agent => agent.restarts, isNumber: true, isWide: true },
            { title: 'Age', cell: agent => ago(agent.start_time), isNumber: true },
            ...(rows.some(reasonOf) ? [{ title: 'Reason', cell: reasonOf, isWide: true }] : []),
          ]}
        />
      )}
    </>
  );
}

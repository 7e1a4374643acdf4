import { isLoopback } from '../../config/contradictions.ts';
import { ACCESSES, type Access } from '../../core/address.ts';
import type { Variables } from '../../core/secret.ts';
import { agentArguments, policyOf, restartOf } from '../../explain/agent.ts';
import { age } from '../../lib/age.ts';
import { endOfRecording } from '../call/records.ts';
import { shownVariable } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import {
  coloured,
  oneOf,
  printable,
  printFields,
  printJson,
  printTable,
  printWarnings,
  withSpinner,
} from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';
import { printList, type WatchOptions } from '../wait/watched-list.ts';

/** A record of `GET /api/agent/{id}`. A service of another version may omit fields. */
export interface Agent {
  readonly instance_id: string;
  readonly namespace: string;
  readonly name: string;
  readonly tenant?: string;
  readonly status: string;
  readonly status_reason?: string;
  readonly load_error?: string;
  readonly sandbox_type?: string;
  readonly sandbox_id?: string;
  readonly node_id?: string;
  readonly node_ip?: string;
  readonly sandbox_ip?: string;
  readonly runtime?: string;
  readonly handler?: string;
  readonly codePath?: string;
  readonly urn?: string;
  readonly rootfs?: {
    readonly type?: string;
    readonly imageurl?: string;
    readonly user?: string;
    readonly workspace?: string;
    readonly mounts?: readonly { readonly source: string; readonly target: string; readonly readonly?: boolean }[];
  };
  readonly ports?: readonly string[];
  readonly port_mappings?: readonly {
    readonly protocol: string;
    readonly container_port: number;
    readonly host_ip: string;
    readonly host_port: number;
  }[];
  readonly env_vars?: Variables;
  readonly restart_policy?: { readonly policy: string; readonly max_restarts?: number | null };
  readonly restart_at?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly expires_at?: string;
  readonly idle_seconds?: number;
  readonly on_expiry?: string;
  readonly paused_at?: string;
  readonly durable?: {
    readonly state_bytes: number;
    readonly state_version: number;
    readonly saved_at?: string;
    readonly slept_at?: string;
    readonly is_changed?: boolean;
  };
  readonly expose?: Exposed;
  readonly resources?: { readonly cpu?: number; readonly memory?: number };
  readonly start_time?: string | null;
  readonly restarts?: number;
  readonly isolation?: readonly string[];
  readonly warnings?: readonly string[];
}

interface ForOne extends ClientOptions {
  readonly namespace: string;
  readonly json?: boolean;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const PAGE = 1000;

/** Returns the agent with an id or name, or null. */
export async function findAgent(client: Client, given: string, namespace: string): Promise<Agent | null> {
  try {
    const id = await resolveAgent(client, given, namespace);
    return (await client.json('GET', `/api/agent/${encodeURIComponent(id)}`)).instance as Agent;
  } catch (error) {
    if (error instanceof NoSuchAgent || (error instanceof CliError && error.status === 404)) return null;
    throw error;
  }
}

class NoSuchAgent extends CliError {}

/** Returns `given` itself if it has the form of an id, otherwise the id of the agent with that name. */
export async function resolveAgent(client: Client, given: string, namespace: string): Promise<string> {
  if (UUID.test(given)) return given;
  const query = new URLSearchParams({ namespace, name: given, limit: '1' });
  const { instances } = await client.json('GET', `/api/agent?${query}`);
  const [found] = instances as readonly Agent[];
  if (found === undefined) {
    throw new NoSuchAgent(`There is no agent ${namespace}/${given}. "rookery agent list" shows those that exist.`);
  }
  return found.instance_id;
}

/** The events that change a list of agents. */
const AGENT_EVENTS = ['created', 'ready', 'paused', 'resumed', 'failed', 'restarting', 'stopping', 'ended'];

interface ListOptions extends WatchOptions {
  readonly namespace?: string;
  readonly name?: string;
  readonly status?: string;
  readonly label?: readonly string[];
  readonly limit: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export async function listAgents(io: Io, options: ListOptions): Promise<void> {
  if (!/^[1-9]\d{0,8}$/.test(options.limit))
    throw usageError(`--limit must be a whole number from 1, not ${JSON.stringify(options.limit)}.`);
  await printList(io, options, AGENT_EVENTS, async (out, client) => {
    const { agents, isAll } = await allAgents(client, options, Number(options.limit));
    printAgents(out, client, agents, isAll, options);
    return agents;
  });
}

type AgentFilter = { readonly [name in 'namespace' | 'name' | 'status']?: string } & Pick<ListOptions, 'label'>;

/** Returns at most `limit` agents that match the filter. */
export async function allAgents(
  client: Client,
  filter: AgentFilter,
  limit: number,
): Promise<{ readonly agents: readonly Agent[]; readonly isAll: boolean }> {
  const agents: Agent[] = [];
  let cursor: string | null = null;
  do {
    const query = new URLSearchParams({ limit: String(Math.min(PAGE, limit - agents.length)) });
    for (const name of ['namespace', 'name', 'status'] as const) {
      if (filter[name] !== undefined) query.set(name, filter[name]);
    }
    for (const label of filter.label ?? []) query.append('label', label);
    if (cursor !== null) query.set('cursor', cursor);
    const page = await client.json('GET', `/api/agent?${query}`);
    agents.push(...(page.instances as readonly Agent[]));
    cursor = typeof page.next_cursor === 'string' ? page.next_cursor : null;
  } while (cursor !== null && agents.length < limit);
  return { agents, isAll: cursor === null };
}

function printAgents(io: Io, client: Client, agents: readonly Agent[], isAll: boolean, options: ListOptions): void {
  if (options.json === true) printJson(io, agents);
  else if (options.quiet === true) for (const agent of agents) io.out.write(`${agent.instance_id}\n`);
  else {
    const text = ({ expose }: Agent) => (expose ? addressFor(client, expose) : '-');
    const address = { title: 'ADDRESS', text, isFlexible: true };
    printTable(io, agents.some(({ expose }) => expose) ? [...AGENT_COLUMNS, address] : AGENT_COLUMNS, agents);
    if (!isAll) io.err.write(`There are more: only ${options.limit} are shown (--limit).\n`);
    if (agents.length === 0)
      io.err.write('There is no agent yet. "rookery agent create --help" shows how to make one.\n');
  }
}

const AGENT_COLUMNS = [
  // A narrow table shortens ids first, because names identify agents; -q and --json print whole ids.
  { title: 'ID', text: (agent: Agent) => agent.instance_id, isFlexible: true, gives: 'first' as const },
  {
    title: 'NAME',
    text: (agent: Agent) => `${agent.namespace}/${agent.name}`,
    isFlexible: true,
    gives: 'last' as const,
  },
  { title: 'STATUS', text: statusText, style: statusStyle },
  { title: 'RUNTIME', text: (agent: Agent) => agent.runtime ?? '-', isFlexible: true },
  { title: 'SANDBOX', text: (agent: Agent) => agent.sandbox_type || 'default' },
  { title: 'RESTARTS', text: (agent: Agent) => String(agent.restarts ?? 0) },
  { title: 'AGE', text: (agent: Agent) => age(agent.start_time) },
];

/** An agent whose code does not load is RUNNING but fails every call, so the list shows the problem. */
function statusText(agent: Agent): string {
  return agent.load_error ? `${agent.status} (code not loaded)` : agent.status;
}

function statusStyle(agent: Agent): 'green' | 'yellow' | 'red' {
  if (agent.status === 'FAILED') return 'red';
  return agent.status === 'RUNNING' && !agent.load_error ? 'green' : 'yellow';
}

export async function getAgent(io: Io, given: string, options: ForOne): Promise<void> {
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  const recordingEnd = options.json === true ? undefined : await endOfRecording(client, id);
  const { instance } = await client.json('GET', `/api/agent/${encodeURIComponent(id)}`);
  if (options.json === true) printJson(io, instance);
  else printAgent(io, client, instance as Agent, recordingEnd);
}

export async function deleteAgents(
  io: Io,
  ids: readonly string[],
  options: ForOne & { readonly grace?: string },
): Promise<void> {
  const query =
    options.grace === undefined ? '' : `?grace=${Math.ceil(parseDurationMs(options.grace, '--grace') / 1000)}`;
  const client = await Client.open(options, io);
  const failures: CliError[] = [];
  await withSpinner(io, ids.length === 1 ? 'deleting the agent' : `deleting ${ids.length} agents`, async () => {
    // Deletes run in sequence, in the order of the arguments. One failure does not stop the others.
    for (const given of ids) {
      try {
        const id = await resolveAgent(client, given, options.namespace);
        const answer = await client.json('DELETE', `/api/agent/${encodeURIComponent(id)}${query}`, { timeoutMs: null });
        if (options.json === true) printJson(io, { ...answer, instance_id: id });
        else io.out.write(`${id}\n`);
      } catch (error) {
        if (!(error instanceof CliError)) throw error;
        failures.push(error);
      }
    }
  });
  const [first] = failures;
  if (first !== undefined) throw new CliError(failures.map(failure => failure.message).join('\n'), first.exitCode);
}

/** Restarts an agent. Returns the exit code. */
export async function restartAgent(io: Io, given: string, options: ForOne): Promise<number> {
  const client = await Client.open(options, io);
  const answer = await withSpinner(io, 'restarting the agent', async () => {
    const id = await resolveAgent(client, given, options.namespace);
    return client.json('POST', `/api/agent/${encodeURIComponent(id)}/restart`, { timeoutMs: null });
  });
  if (options.json === true) printJson(io, answer);
  else io.out.write(`${String(answer.instance_id)}\n`);
  return tellLoadError(io, client, String(answer.instance_id));
}

/**
 * Reports a load error at once instead of with the first call. Such an agent exists, so that its sandbox can
 * be inspected. Returns the exit code.
 */
export async function tellLoadError(io: Io, client: Client, id: string): Promise<number> {
  const { instance } = await client.json('GET', `/api/agent/${encodeURIComponent(id)}`).catch((error: unknown) => {
    // The agent was created, so an unreadable record is not an error of the create.
    if (error instanceof CliError) return { instance: undefined };
    throw error;
  });
  const agent = instance as Agent | undefined;
  if (!agent?.load_error) return EXIT.ok;
  const { load_error: reason, name, namespace } = agent;
  const again = agentArguments(name, namespace);
  const clear = io.err.isTerminal ? '\r\x1b[K' : '';
  io.err.write(
    `${clear}${coloured(io, io.err, 'red', 'The agent exists, but its code could not be loaded:')} ${printable(reason)}\n` +
      `Every call will fail with this. When the code is repaired: ${printable(restartOf(agent, again))}\n` +
      `When the request was wrong (handler, runtime, dependencies): repeat "rookery agent create ${printable(again)} …" with --replace\n` +
      `Remove it: rookery agent rm ${printable(again)}\n`,
  );
  return EXIT.failure;
}

function printAgent(io: Io, client: Client, agent: Agent, recordingEnd: string | undefined): void {
  const { rootfs, resources } = agent;
  printFields(io, [
    ['id', agent.instance_id],
    ['name', `${agent.namespace}/${agent.name}`],
    ['tenant', agent.tenant],
    ['status', statusText(agent)],
    ['reason', agent.status_reason],
    ['load error', agent.load_error],
    ['runtime', agent.runtime],
    ['handler', agent.handler],
    ['code path', agent.codePath],
    ['sandbox', [agent.sandbox_type, agent.sandbox_id].filter(Boolean).join(' ')],
    ['isolation', agent.isolation?.join(', ')],
    ['files', rootfs?.type === 'image' ? rootfs.imageurl : rootfs?.type],
    ['user', rootfs?.user],
    ['workspace', rootfs?.workspace],
    ...(rootfs?.mounts ?? []).map(
      mount => ['mount', `${mount.source} at ${mount.target}${mount.readonly === true ? ' (read-only)' : ''}`] as const,
    ),
    ...(agent.port_mappings ?? []).map(
      port => ['port', `${port.protocol} ${port.container_port} at ${port.host_ip}:${port.host_port}`] as const,
    ),
    ...Object.entries(agent.env_vars ?? {}).map(([name, value]) => ['env', `${name}=${shownVariable(value)}`] as const),
    ['resources', resources && `${resources.cpu} millicores, ${resources.memory} MB`],
    ['node', [agent.node_id, agent.node_ip].filter(Boolean).join(' ')],
    ['address', agent.expose && addressFor(client, agent.expose)],
    ['sandbox address', agent.sandbox_ip],
    ['started', agent.start_time ? `${agent.start_time} (${age(agent.start_time)} ago)` : undefined],
    ['restarts', agent.restarts],
    ['restart policy', policyOf(agent)],
    ['starts again', agent.restart_at],
    ...Object.entries(agent.labels ?? {}).map(([name, value]) => ['label', `${name}=${value}`] as const),
    ['ends', agent.expires_at && `${agent.expires_at} (${agent.on_expiry})`],
    ['ends unused after', agent.idle_seconds && `${agent.idle_seconds} s (${agent.on_expiry})`],
    ['state', agent.durable && stateOf(agent.durable)],
    ['paused', agent.paused_at],
    ['records all calls until', recordingEnd],
  ]);
  printWarnings(io, agent.warnings ?? []);
}

function stateOf({ state_bytes, saved_at }: NonNullable<Agent['durable']>): string {
  return saved_at === undefined ? 'durable, nothing saved' : `durable, ${state_bytes} bytes, saved ${saved_at}`;
}

/** The member `expose` of a record. */
export interface Exposed {
  readonly port: number;
  readonly access: Access;
  readonly address: string | null;
  readonly path: string;
}

/**
 * Returns the address that works from this machine. Names below localhost lead to this machine, but the
 * service may run on another.
 */
export function addressFor({ addresses }: Pick<Client, 'addresses'>, { address, path }: Exposed): string {
  const isHere = isLoopback(addresses.frontend.hostname.replace(/^\[|\]$/g, ''));
  const isLocal = address !== null && /^http:\/\/[^/]+\.localhost(:|\/)/.test(address);
  return address === null || (isLocal && !isHere) ? new URL(path, addresses.frontend).href : address;
}

/** Parses `8000` or `8000:public`. */
export function parseExpose(text: string): { readonly port: number; readonly access?: Access } {
  const [, port = '', access] = /^(\d{1,5})(?::(\w+))?$/.exec(text) ?? [];
  const known = ACCESSES.find(each => each === access);
  if (port === '' || (access !== undefined && known === undefined)) {
    throw usageError(`--expose must be a port, or port:access with ${oneOf(ACCESSES)}, not ${JSON.stringify(text)}.`);
  }
  return { port: Number(port), ...(known && { access: known }) };
}

import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { type Durable, entriesOf } from '../../core/durable.ts';
import { MASK } from '../../core/environment.ts';
import { shownPolicy } from '../../core/restart-policy.ts';
import type { Variables } from '../../core/secret.ts';
import { agentArguments } from '../../explain/agent.ts';
import { addressFor, type Exposed } from '../agent/records.ts';
import { CliError } from '../shared/exit.ts';
import type { DeployedAgent } from './file.ts';
import { differences, nothing, type Planning, type Step } from './step.ts';

const CODE_PATH = '/code';
/**
 * Variable that carries the revision. The code can read it, and the next deploy compares it to detect
 * changes.
 */
const REVISION = 'DEPLOY_REVISION';
/** Longer than any start may take. */
const CREATING_MS = 600_000;
const LOOK_MS = 250;

interface Found {
  readonly instance_id: string;
  readonly namespace: string;
  readonly name: string;
  readonly status: string;
  readonly runtime: string;
  readonly handler: string;
  readonly rootfs: { readonly imageurl: string; readonly user: string; readonly mounts: readonly { source: string }[] };
  readonly ports: readonly string[];
  readonly env_vars: Variables;
  readonly resources: { readonly cpu: number; readonly memory: number };
  readonly port_mappings?: readonly { container_port: number; host_ip: string; host_port: number; protocol: string }[];
  readonly expose?: Exposed;
  readonly load_error?: string;
  readonly restart_policy?: object;
  readonly sandbox_type: string;
  readonly durable?: { readonly sleep_after_seconds: number };
}

/**
 * Plans the step for an agent. A durable agent is updated and keeps its state. Another one cannot change, so
 * it is replaced once the new one has loaded its code.
 */
export async function planAgent(planning: Planning, name: string, agent: DeployedAgent): Promise<Step> {
  const { client, deployment } = planning;
  const namespace = agent.namespace ?? deployment.namespace;
  const url = await planning.codeUrl(agent.code);
  const asks = planning.asks(agent);
  const body = bodyOf(namespace, name, agent, url, asks);
  const revision = createHash('sha256').update(JSON.stringify(body)).digest('hex').slice(0, 12);
  const whole = { ...body, env_vars: { ...agent.env, [REVISION]: revision }, replace: true };
  const found = await untilCreated(planning, namespace, name);
  const prepare = async () => (asks ? await planning.install(agent, url) : undefined);
  const step = { kind: 'agent', name: `${namespace}/${name}` } as const;
  const create = async () => {
    const { instance_id } = await client.json('POST', '/api/agent', { body: JSON.stringify(whole), timeoutMs: null });
    return await whereIs(planning, String(instance_id));
  };
  if (found === null) return { ...step, action: 'create', changes: [], prepare, apply: create };
  const isAsWanted = found.env_vars[REVISION] === revision;
  const fault = faultOf(found);
  const changed = isAsWanted ? { changes: [fault as string] } : changesOf(whole, found);
  if (isAsWanted && fault === null) return { ...step, action: 'unchanged', changes: [], apply: nothing };
  if (found.durable !== undefined)
    return {
      ...{ ...step, action: 'update', ...changed, prepare },
      apply: async () => {
        refuseLoss(found, agent);
        const path = `/api/agent/${encodeURIComponent(found.instance_id)}?apply=now`;
        await client.json('PATCH', path, { body: JSON.stringify(updateOf(whole)), timeoutMs: null });
        return `${await whereIs(planning, found.instance_id)}, state kept`;
      },
    };
  return {
    ...step,
    action: 'replace',
    ...changed,
    prepare,
    async apply() {
      try {
        return await create();
      } catch (error) {
        // Without an answer, the result is unknown.
        if (!(error instanceof CliError) || error.status === null) throw error;
        const sentence = `the old one stays as it is, since the new one: ${error.message}`;
        throw new CliError(sentence, error.exitCode, error.status);
      }
    },
  };
}

/** Fails if a durable agent could not become what the file says without the loss of its state. */
function refuseLoss({ namespace, name, sandbox_type }: Found, { durable, sandbox }: DeployedAgent): void {
  const command = `rookery agent rm ${agentArguments(name, namespace)}`;
  if (!durable)
    throw new CliError(`it is durable, and would lose its state: add durable: true, or remove it first: ${command}`);
  if (sandbox !== '' && sandbox !== sandbox_type)
    throw new CliError(
      `its sandbox is of type ${sandbox_type}, which cannot change to ${sandbox} while it keeps its state: remove it first: ${command}`,
    );
}

/** Returns the body of an update that makes a durable agent what the file says. */
function updateOf({
  runtime_spec: spec,
  mounts,
  env_vars,
  expose,
  restart_policy,
  durable,
}: ReturnType<typeof bodyOf>) {
  const { sandbox_type: _type, extendedHandler, ...rest } = spec as typeof spec & { readonly sandbox_type?: string };
  return {
    ...{ mounts, env_vars, durable },
    ...{ expose: expose ?? null, restart_policy: restart_policy ?? null },
    runtime_spec: {
      ...{ httpProfile: '', dependencies: '', ...rest },
      extendedHandler: { alarm: '', sleep: '', ...extendedHandler },
    },
  };
}

/**
 * Returns why an agent of the right revision does not serve, or null. A durable agent serves when it sleeps.
 */
function faultOf({ status, load_error, durable }: Found): string | null {
  const serves = status === 'RUNNING' || (durable !== undefined && status !== 'STOPPING');
  if (!serves) return `it is ${status}`;
  return load_error ? 'its code could not be loaded' : null;
}

/**
 * Returns the agent of this name after its create or restart has ended. Returns its current state if that
 * takes too long.
 */
async function untilCreated(planning: Planning, namespace: string, name: string): Promise<Found | null> {
  const endMs = performance.now() + CREATING_MS;
  for (;;) {
    const found = await findAgent(planning, namespace, name);
    if (found?.status !== 'CREATING' || performance.now() > endMs) return found;
    await delay(LOOK_MS);
  }
}

function bodyOf(namespace: string, name: string, agent: DeployedAgent, source: string, asks: boolean) {
  const { runtime, handler, initializer, preStop, cpu, memory, sandbox, image, user, ports, env } = agent;
  const { alarm = '', sleep = '' } = agent.on ?? {};
  return {
    namespace,
    name,
    mounts: [{ source, target: CODE_PATH, readonly: true }],
    env_vars: env,
    ...(agent.expose && { expose: agent.expose }),
    ...(agent.restart && { restart_policy: shownPolicy(agent.restart) }),
    ...(agent.durable && { durable: durableBody(agent.durable) }),
    runtime_spec: {
      ...{ runtime, handler, cpu, memory, codePath: CODE_PATH },
      ...(agent.httpProfile === '' ? {} : { httpProfile: agent.httpProfile }),
      ...(asks ? { dependencies: 'auto' } : {}),
      ...(sandbox === '' ? {} : { sandbox_type: sandbox }),
      extendedHandler: { initializer, pre_stop: preStop, ...entriesOf({ alarm, sleep }) },
      rootfs: { imageurl: image, user, ports },
    },
  };
}

function durableBody({ sleepMs, files }: Durable): true | object {
  if (sleepMs === undefined && files === undefined) return true;
  return {
    ...(sleepMs !== undefined && { sleep_after_seconds: sleepMs / 1000 }),
    ...(files && { files: { path: files.path, max_mb: files.maxMb } }),
  };
}

async function findAgent({ client }: Planning, namespace: string, name: string): Promise<Found | null> {
  const query = new URLSearchParams({ namespace, name, limit: '1' });
  const { instances } = await client.json('GET', `/api/agent?${query}`);
  return (instances as readonly Found[])[0] ?? null;
}

/**
 * Returns the differences from an agent of another revision. Only callers who may read environments see the
 * name of that revision.
 */
function changesOf(
  { runtime_spec: spec, ...body }: ReturnType<typeof bodyOf>,
  found: Found,
): Pick<Step, 'changes' | 'hidden'> {
  const { [REVISION]: _wanted, ...env } = body.env_vars as Variables;
  const { [REVISION]: revision, ...foundEnv } = found.env_vars;
  const withProtocol = (port: string) => (/^\d/.test(port) ? `tcp:${port}` : port);
  const { changes, hidden } = differences(
    {
      ...{ runtime: spec.runtime, handler: spec.handler, cpu: spec.cpu, memory: spec.memory },
      env: { env_vars: env },
      ...{
        code: body.mounts[0]?.source,
        restart: body.restart_policy,
        image: spec.rootfs.imageurl,
        user: spec.rootfs.user,
      },
      ports: spec.rootfs.ports.map(withProtocol),
      expose: body.expose,
    },
    {
      ...{ runtime: found.runtime, handler: found.handler, ports: found.ports },
      env: { env_vars: foundEnv },
      ...{ cpu: found.resources.cpu, memory: found.resources.memory },
      ...{
        code: found.rootfs.mounts[0]?.source,
        restart: found.restart_policy,
        image: found.rootfs.imageurl,
        user: found.rootfs.user,
      },
      expose: found.expose && { port: found.expose.port, access: found.expose.access },
    },
  );
  if (revision === MASK) {
    const fault = faultOf(found);
    const known = fault === null ? changes : [...changes, fault];
    return { changes: known, hidden: changes.includes('env') ? [] : ['env'] };
  }
  const differing = [...changes, ...hidden];
  return { changes: differing.length > 0 ? differing : ['what is not in its record'] };
}

async function whereIs({ client }: Planning, id: string): Promise<string> {
  const { instance } = (await client.json('GET', `/api/agent/${id}`)) as { instance?: Found };
  const ports = (instance?.port_mappings ?? []).map(
    ({ protocol, container_port, host_ip, host_port }) => `${protocol}:${container_port} at ${host_ip}:${host_port}`,
  );
  const { expose } = instance ?? {};
  return [id, ...ports, ...(expose ? [addressFor(client, expose)] : [])].join(', ');
}

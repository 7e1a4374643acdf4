import { createHash } from 'node:crypto';
import { MASK } from '../core/mask.ts';
import { shownPolicy } from '../core/restart-policy.ts';
import type { Variables } from '../core/secret.ts';
import type { DeployedAgent } from './deploy-file.ts';
import { differences, nothing, type Planning, type Step } from './deploy-step.ts';
import { CliError } from './exit.ts';
import { addressFor, type Exposed } from './open.ts';

const CODE_PATH = '/code';
/** The code sees which deployment it is of; the next one sees whether anything has changed. */
const REVISION = 'DEPLOY_REVISION';
const FAILED = 'it is FAILED';

interface Found {
  readonly instance_id: string;
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
}

/** An agent cannot be changed: one that is not as the file says is deleted and created anew. */
export async function planAgent(planning: Planning, name: string, agent: DeployedAgent): Promise<Step> {
  const { client, deployment } = planning;
  const namespace = agent.namespace ?? deployment.namespace;
  const url = await planning.codeUrl(agent.code);
  const asks = planning.asks(agent);
  const body = bodyOf(namespace, name, agent, url, asks);
  const revision = createHash('sha256').update(JSON.stringify(body)).digest('hex').slice(0, 12);
  const whole = { ...body, env_vars: { ...agent.env, [REVISION]: revision } };
  const found = await findAgent(planning, namespace, name);
  const prepare = async () => (asks ? await planning.install(agent, url) : undefined);
  const step = { kind: 'agent', name: `${namespace}/${name}` } as const;
  const create = async () => {
    const { instance_id } = await client.json('POST', '/api/agent', { body: JSON.stringify(whole), timeoutMs: null });
    return await whereIs(planning, String(instance_id));
  };
  if (found === null) return { ...step, action: 'create', changes: [], prepare, apply: create };
  const isAsWanted = found.env_vars[REVISION] === revision;
  if (isAsWanted && found.status !== 'FAILED') return { ...step, action: 'unchanged', changes: [], apply: nothing };
  return {
    ...step,
    action: 'replace',
    ...(isAsWanted ? { changes: [FAILED] } : changesOf(whole, found)),
    // Before the old one goes: what fails here leaves it.
    prepare,
    async apply() {
      await client.json('DELETE', `/api/agent/${found.instance_id}`, { timeoutMs: null });
      try {
        return await create();
      } catch (error) {
        if (!(error instanceof CliError)) throw error;
        throw new CliError(`the old one is gone, and the new one: ${error.message}`, error.exitCode, error.status);
      }
    },
  };
}

function bodyOf(namespace: string, name: string, agent: DeployedAgent, source: string, asks: boolean) {
  const { runtime, handler, initializer, preStop, cpu, memory, sandbox, image, user, ports, env } = agent;
  return {
    namespace,
    name,
    mounts: [{ source, target: CODE_PATH, readonly: true }],
    env_vars: env,
    ...(agent.expose && { expose: agent.expose }),
    ...(agent.restart && { restart_policy: shownPolicy(agent.restart) }),
    runtime_spec: {
      ...{ runtime, handler, cpu, memory, codePath: CODE_PATH },
      ...(asks ? { dependencies: 'auto' } : {}),
      ...(sandbox === '' ? {} : { sandbox_type: sandbox }),
      extendedHandler: { initializer, pre_stop: preStop },
      rootfs: { imageurl: image, user, ports },
    },
  };
}

async function findAgent({ client }: Planning, namespace: string, name: string): Promise<Found | null> {
  const query = new URLSearchParams({ namespace, name, limit: '1' });
  const { instances } = await client.json('GET', `/api/agent?${query}`);
  return (instances as readonly Found[])[0] ?? null;
}

/** Of one that is of another deployment; of which one, is told to whoever is shown environments. */
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
    const known = found.status === 'FAILED' ? [...changes, FAILED] : changes;
    return { changes: known, hidden: changes.includes('env') ? [] : ['env'] };
  }
  const differing = [...changes, ...hidden];
  return { changes: differing.length > 0 ? differing : ['what is not in its record'] };
}

/** Fails when its code could not be loaded: that does not fail a create. */
async function whereIs({ client }: Planning, id: string): Promise<string> {
  const { instance } = (await client.json('GET', `/api/agent/${id}`)) as { instance?: Found };
  if (instance?.load_error) throw new CliError(`it runs, but its code could not be loaded: ${instance.load_error}`);
  const ports = (instance?.port_mappings ?? []).map(
    ({ protocol, container_port, host_ip, host_port }) => `${protocol}:${container_port} at ${host_ip}:${host_port}`,
  );
  const { expose } = instance ?? {};
  return [id, ...ports, ...(expose ? [addressFor(client, expose)] : [])].join(', ');
}

import { agentArguments } from '../../explain/agent.ts';
import { asksForDependencies, type DependencyOptions, installDependencies } from '../code/dependencies.ts';
import { codeDirectory, mustUpload, type UploadOptions, uploadCode } from '../code/upload.ts';
import { type VariableOptions, variablesOf } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson } from '../shared/print.ts';
import { parseCpuMillis, parseMemoryMb } from '../shared/units.ts';
import { checkHandler, parseRestart } from './create.ts';
import { sleepFields } from './lifetime.ts';
import { type Agent, resolveAgent } from './records.ts';

interface UpdateOptions extends ClientOptions, DependencyOptions, UploadOptions, VariableOptions {
  readonly namespace: string;
  readonly code?: string;
  readonly handler?: string;
  readonly initializer?: string;
  readonly preStop?: string;
  readonly alarm?: string;
  readonly sleepEntry?: string;
  readonly runtime?: string;
  readonly cpu?: string;
  readonly memory?: string;
  readonly restart?: string;
  readonly sleepAfter?: string;
  readonly urn?: string;
  readonly now?: boolean;
  readonly json?: boolean;
}

type Body = Record<string, unknown>;

/** Changes settings of a durable agent, and prints its id. */
export async function updateAgent(io: Io, given: string, options: UpdateOptions): Promise<void> {
  const client = await Client.open(options, io);
  const path = `/api/agent/${encodeURIComponent(await resolveAgent(client, given, options.namespace))}`;
  const agent = (await client.json('GET', path)).instance as Agent;
  const body = await bodyOf(io, client, agent, options);
  if (Object.keys(body).length === 0)
    throw usageError('Say what changes, for example --code ./chat, --env NAME=value or --memory 512.');
  const query = options.now === true ? '?apply=now' : '';
  const answer = await client.json('PATCH', path + query, { body: JSON.stringify(body), timeoutMs: null });
  if (options.json === true) printJson(io, answer);
  else io.out.write(`${agent.instance_id}\n`);
  const { durable, status } = answer.instance as Agent;
  if (options.json === true || status !== 'RUNNING' || durable?.is_changed !== true) return;
  const called = agentArguments(agent.name, agent.namespace);
  io.err.write(`The next start takes the change. At once: rookery agent sleep ${called}\n`);
}

async function bodyOf(io: Io, client: Client, agent: Agent, options: UpdateOptions): Promise<Body> {
  const { handler, initializer, preStop, alarm, sleepEntry, runtime, cpu, memory, restart, sleepAfter, urn } = options;
  const env = variablesOf(options);
  const extendedHandler = defined({ initializer, pre_stop: preStop, alarm, sleep: sleepEntry });
  if (handler !== undefined) checkHandler(undefined, handler, runtime ?? agent.runtime ?? '');
  const { mounts, dependencies } = await codeOf(io, client, agent, options);
  const spec = defined({
    ...{ handler, runtime, dependencies },
    cpu: cpu && parseCpuMillis(cpu),
    memory: memory && parseMemoryMb(memory),
    extendedHandler: Object.keys(extendedHandler).length === 0 ? undefined : extendedHandler,
  });
  return defined({
    ...{ mounts, urn, env_vars: env },
    restart_policy: restart && parseRestart(restart),
    durable: sleepAfter && sleepFields(sleepAfter),
    runtime_spec: Object.keys(spec).length === 0 ? undefined : spec,
  });
}

/** Uploads the code, and returns all mounts with it at the place of the earlier code. */
async function codeOf(io: Io, client: Client, agent: Agent, options: UpdateOptions): Promise<Body> {
  const { code, runtime = agent.runtime ?? '' } = options;
  if (code === undefined) return {};
  if (agent.urn !== undefined)
    throw usageError('The agent has the code of a registered function: --urn names another version of it.');
  const directory = await codeDirectory(code);
  const source = mustUpload(client, options) ? await uploadCode(io, client, code) : directory;
  const target = agent.codePath ?? '/code';
  const others = (agent.rootfs?.mounts ?? []).filter(mount => mount.target !== target);
  const asks = asksForDependencies(code, runtime, options);
  if (asks) await installDependencies(io, client, source, runtime, agent.sandbox_type);
  return { mounts: [{ source, target, readonly: true }, ...others], dependencies: asks ? 'auto' : '' };
}

function defined(body: Body): Body {
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));
}

import { randomBytes } from 'node:crypto';
import { age } from '../../lib/age.ts';
import { type LifetimeOptions, lifetimeFields } from '../agent/lifetime.ts';
import { type VariableOptions, variablesOf } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import type { Io } from '../shared/io.ts';
import { printJson, printTable } from '../shared/print.ts';
import { parseCpuMillis, parseMemoryMb } from '../shared/units.ts';

export interface CreateOptions extends ClientOptions, LifetimeOptions, VariableOptions {
  readonly template: string;
  readonly image?: string;
  readonly namespace: string;
  readonly cpu?: string;
  readonly memory?: string;
  readonly json?: boolean;
}

interface ListOptions extends ClientOptions {
  readonly label?: readonly string[];
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** A sandbox of `GET /api/agent`. */
interface Sandbox {
  readonly instance_id: string;
  readonly name: string;
  readonly template?: string;
  readonly status: string;
  readonly start_time?: string | null;
  readonly expires_at?: string;
}

/** Returns the body of a create of a sandbox; a name is made up if none is given. */
export function sandboxBody(name: string | undefined, options: CreateOptions): Record<string, unknown> {
  const { template, image, namespace, cpu, memory } = options;
  const resources = {
    ...(cpu !== undefined && { cpu: parseCpuMillis(cpu, '--cpu') }),
    ...(memory !== undefined && { memory: parseMemoryMb(memory, '--memory') }),
  };
  return {
    ...{ namespace, name: name ?? `sandbox-${randomBytes(4).toString('hex')}` },
    ...(image === undefined ? { template } : { image }),
    ...(Object.keys(resources).length > 0 && {
      runtime_spec: { runtime: 'python3', rootfs: { imageurl: image ?? template }, ...resources },
    }),
    env_vars: variablesOf(options),
    ...lifetimeFields(options),
  };
}

/** Creates a sandbox and prints its id. */
export async function createSandbox(io: Io, name: string | undefined, options: CreateOptions): Promise<void> {
  const client = await Client.open(options, io);
  const body = JSON.stringify(sandboxBody(name, options));
  const answer = await client.json('POST', '/api/agent', { body, timeoutMs: null });
  if (options.json === true) printJson(io, answer);
  else io.out.write(`${String(answer.instance_id)}\n`);
}

/** Prints all sandboxes: the agents that have a template. */
export async function listSandboxes(io: Io, options: ListOptions): Promise<void> {
  const client = await Client.open(options, io);
  const found: Sandbox[] = [];
  let cursor: string | null = null;
  do {
    const query = new URLSearchParams({ limit: '1000' });
    for (const label of options.label ?? []) query.append('label', label);
    if (cursor !== null) query.set('cursor', cursor);
    const page = await client.json('GET', `/api/agent?${query}`);
    found.push(...(page.instances as Sandbox[]).filter(({ template }) => template !== undefined));
    cursor = page.next_cursor as string | null;
  } while (cursor !== null);
  if (options.json === true) return printJson(io, found);
  if (options.quiet === true) {
    for (const { instance_id } of found) io.out.write(`${instance_id}\n`);
    return;
  }
  printTable(
    io,
    [
      { title: 'ID', text: sandbox => sandbox.instance_id },
      { title: 'NAME', text: sandbox => sandbox.name },
      { title: 'TEMPLATE', text: sandbox => sandbox.template ?? '' },
      { title: 'STATUS', text: sandbox => sandbox.status },
      { title: 'AGE', text: sandbox => age(sandbox.start_time) },
      { title: 'ENDS', text: sandbox => sandbox.expires_at ?? 'never' },
    ],
    found,
  );
}

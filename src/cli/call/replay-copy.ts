import { randomUUID } from 'node:crypto';
import { SANDBOX_TYPES } from '../../core/sandbox-types.ts';
import { type Agent, findAgent } from '../agent/records.ts';
import { asksForDependencies, installDependencies } from '../code/dependencies.ts';
import { codeDirectory, mustUpload, uploadCode } from '../code/upload.ts';
import { callMeta, metaPath } from '../function/meta-call.ts';
import { functionUrl, parseNamedVersion } from '../function/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printWarning, withSpinner } from '../shared/print.ts';
import type { Call } from './records.ts';

export interface ReplayOptions extends ClientOptions {
  readonly version?: string;
  readonly code?: string;
  readonly allowWrites?: boolean;
  readonly upload?: boolean;
  readonly json?: boolean;
}

/** The place of the new call. */
export interface Place {
  readonly path: string;
  /** Query of the history that selects calls of this place. */
  readonly query: Readonly<Record<string, string>>;
  readonly target: string;
}

/** The record of an agent with the fields that only its create needs. */
interface Original extends Agent {
  readonly urn?: string;
  readonly template?: string;
  readonly httpProfile?: string;
  readonly extendedHandler?: { readonly initializer: string; readonly pre_stop: string };
  readonly dependencies?: string;
}

/** The agent of a call. */
type OfAgent = Pick<Call, 'agent_id' | 'name'>;

type Mounts = NonNullable<NonNullable<Agent['rootfs']>['mounts']>;

/** Time to live of a copy, for the case that this command is killed. Longer than the longest call. */
const TTL_SECONDS = 3600;
const END_TIMEOUT_MS = 60_000;

/**
 * Creates a temporary agent like that of a call, runs `work` on it, and deletes it, also after Ctrl-C.
 * The copy has no address, no restarts, no labels and no saved state.
 */
export async function withCopy<T>(
  io: Io,
  call: OfAgent,
  options: ReplayOptions,
  work: (client: Client, io: Io, place: Place) => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const end = () => over.abort();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, end);
  io.signal.addEventListener('abort', end, { once: true });
  const copyIo: Io = { ...io, signal: over.signal };
  const name = `replay-${randomUUID().slice(0, 8)}`;
  let namespace = '';
  try {
    const client = await Client.open(options, copyIo);
    const original = await findOriginal(client, io, call);
    checkOriginal(original, options);
    const body = await bodyOf(copyIo, client, original, options);
    namespace = original.namespace;
    const { instance_id: id } = await withSpinner(io, 'creating the copy', () =>
      client.json('POST', '/api/agent', {
        body: JSON.stringify({ ...body, namespace, name, ttl_seconds: TTL_SECONDS }),
        timeoutMs: null,
      }),
    );
    const path = `/api/agent/${String(id)}/invoke`;
    return await work(client, copyIo, { path, query: { agent: String(id) }, target: `${namespace}/${name}` });
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, end);
    io.signal.removeEventListener('abort', end);
    // The signal that ended the command would also abort these requests. The name finds a copy whose create
    // was interrupted.
    if (namespace !== '') await deleteCopy(options, io, name, namespace);
  }
}

async function deleteCopy(options: ReplayOptions, io: Io, name: string, namespace: string): Promise<void> {
  const last = await Client.open(options, { ...io, signal: AbortSignal.timeout(END_TIMEOUT_MS) });
  const copy = await findAgent(last, name, namespace);
  if (copy === null) return;
  await last.json('DELETE', `/api/agent/${copy.instance_id}?grace=0`).catch((error: unknown) => {
    if (!(error instanceof CliError) || error.status !== 404) throw error;
  });
}

/** Returns the agent of a call, or the one that has its name now. */
async function findOriginal(
  client: Client,
  io: Io,
  { agent_id: id = '', name: whole = '' }: OfAgent,
): Promise<Original> {
  const same = await findAgent(client, id, '');
  if (same !== null) return same;
  const slash = whole.indexOf('/');
  const named = slash === -1 ? null : await findAgent(client, whole.slice(slash + 1), whole.slice(0, slash));
  if (named === null) {
    throw new CliError(
      `The agent ${whole || id} of this call no longer exists, so its settings are not known. Create it again with its name, then repeat the command.`,
    );
  }
  printWarning(io, `the agent of this call no longer exists; the copy is of the agent that has its name now, ${whole}`);
  return named;
}

function checkOriginal({ namespace, name, template, rootfs }: Original, { allowWrites }: ReplayOptions): void {
  if (template !== undefined) throw new CliError(`${namespace}/${name} is a sandbox without code: it has no handler.`);
  const written = [
    ...(rootfs?.workspace ? [rootfs.workspace] : []),
    ...(rootfs?.mounts ?? []).filter(mount => mount.readonly !== true).map(({ source }) => source),
  ];
  if (written.length === 0 || allowWrites === true) return;
  throw new CliError(
    `The copy of ${namespace}/${name} would share directories that its code may write: ${written.join(', ')}. If that does no harm, add --allow-writes.`,
  );
}

/** Returns the body of the create. Without `--code`, an agent of a function is copied from its URN. */
async function bodyOf(io: Io, client: Client, original: Original, options: ReplayOptions): Promise<object> {
  const { rootfs, urn, env_vars = {}, durable } = original;
  // A request cannot name the executor `process`, which is the default.
  const sandbox = SANDBOX_TYPES.find(type => type === original.sandbox_type) ?? '';
  const mounts = rootfs?.mounts ?? [];
  const common = {
    env_vars,
    ...(rootfs?.workspace ? { workspace: rootfs.workspace } : {}),
    ...(durable === undefined ? {} : { durable: true }),
  };
  if (durable !== undefined) printWarning(io, 'the agent is durable: the copy begins without its saved state');
  if (options.code === undefined && urn !== undefined) {
    return { ...common, urn, mounts: await mountsOfCaller(client, urn, mounts) };
  }
  const { code } = options;
  const source = code === undefined ? undefined : await sourceOf(io, client, code, options);
  if (source !== undefined && asksForDependencies(String(code), original.runtime ?? '')) {
    await installDependencies(io, client, source, original.runtime ?? '', sandbox);
  }
  return {
    ...common,
    mounts: source === undefined ? mounts : withCode(original, mounts, source),
    runtime_spec: {
      ...{ runtime: original.runtime, handler: original.handler, codePath: original.codePath },
      sandbox_type: sandbox,
      rootfs: { imageurl: rootfs?.imageurl, user: rootfs?.user, ports: original.ports },
      ...(original.httpProfile === undefined ? {} : { httpProfile: original.httpProfile }),
      ...(original.extendedHandler === undefined ? {} : { extendedHandler: original.extendedHandler }),
      ...(original.dependencies === undefined ? {} : { dependencies: original.dependencies }),
      ...original.resources,
    },
  };
}

async function sourceOf(io: Io, client: Client, code: string, options: ReplayOptions): Promise<string> {
  return mustUpload(client, options) ? await uploadCode(io, client, code) : await codeDirectory(code);
}

function withCode({ codePath, namespace, name }: Original, mounts: Mounts, source: string): Mounts {
  if (!codePath || !mounts.some(({ target }) => target === codePath)) {
    throw usageError(`--code needs a mounted code directory, and ${namespace}/${name} has its code in its image.`);
  }
  return mounts.map(mount => (mount.target === codePath ? { source, target: codePath, readonly: true } : mount));
}

/** Returns the mounts that the function itself does not bring. */
async function mountsOfCaller(client: Client, urn: string, mounts: Mounts): Promise<Mounts> {
  const { name, version } = parseNamedVersion(urn);
  const { function: found } = await callMeta(client, 'GET', metaPath(functionUrl(name), { versionNumber: version }));
  const { codePath, rootfs } = found as { readonly codePath?: string; readonly rootfs?: { readonly mounts?: Mounts } };
  const own = new Set([...(rootfs?.mounts ?? []).map(({ source }) => source), codePath]);
  return mounts.filter(({ source }) => !own.has(source));
}

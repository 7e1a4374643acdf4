import type { FastifyRequest } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { readE2bFork } from '../../core/e2b.ts';
import { internal, invalidRequest, ServiceError } from '../../core/error.ts';
import type { Instance, InstanceSpec } from '../../core/instance.ts';
import { timeoutSignal } from '../../lib/deadline.ts';
import { forEachOf } from '../../lib/parallel.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { FILES_TARGET } from '../../templates/built.ts';
import { runCommand } from '../../templates/command.ts';
import { frontendErrors } from '../errors.ts';
import { createdView, type SandboxFacts } from './answers.ts';
import { type AddRoute, bodyOf } from './control.ts';
import type { E2bSandbox, E2bSandboxes } from './sandboxes.ts';
import { filesMount, newSandboxName, notOnHost } from './specs.ts';
import { NEW_TEMPLATE, type TemplateBuilds } from './template-builds.ts';

export interface ForkOptions {
  readonly builds: Pick<TemplateBuilds, 'storeFiles'>;
  readonly instances: Pick<AgentInstances, 'access' | 'create'>;
  readonly sandboxes: Pick<E2bSandboxes, 'of'>;
  readonly facts: SandboxFacts;
  /** Bound of reading and storing the files. */
  readonly timeoutMs: number;
  /** Returns a sandbox of the tenant. Fails with `not_found`. */
  readonly find: (tenant: string, sandboxId: string) => Promise<E2bSandbox>;
}

/** Forks that start at the same time. */
const PARALLEL = 4;

/**
 * Prints the processes that are not the platform's, one a line. The list of processes is complete before the
 * script starts any.
 */
const LIST_PROCESSES = `for directory in /proc/[0-9]*; do
  [ "$directory" != /proc/$$ ] || continue
  line=$(tr '\\0\\n' '  ' 2>/dev/null < "$directory/cmdline") || continue
  case "$line" in
    '' | 'rookery: '* | *'from rookery_interpreter import server; '*) ;;
    *) printf '%s %.60s\\n' "\${directory#/proc/}" "$line" ;;
  esac
done`;

/** Adds the route that starts sandboxes with the files of another one. `change` are its options. */
export function addForkRoute(add: AddRoute, change: Parameters<AddRoute>[2], options: ForkOptions): void {
  add('POST', ['/sandboxes/:sandboxID/fork'], change, async (request, reply) =>
    reply.code(201).send(await fork(request, options)),
  );
}

/** Starts the forks, and returns an entry for each: the sandbox, or the error of its start. */
async function fork(
  request: FastifyRequest<{ Params: { sandboxID: string } }>,
  { builds, instances, sandboxes, facts, timeoutMs, find }: ForkOptions,
): Promise<readonly Record<string, unknown>[]> {
  const { tenant, params } = request;
  const { instance } = await find(tenant, params.sandboxID);
  const { count, timeout, memory } = readE2bFork(bodyOf(request));
  if (instance.spec.rootfs.type !== 'host') throw notOnHost();
  const access = await instances.access(tenant, instance.id);
  const signal = timeoutSignal(timeoutMs);
  if (memory) await checkNoProcesses(access, signal);
  const sha256 = await builds.storeFiles(tenant, access, signal);
  const entries: Record<string, unknown>[] = [];
  await forEachOf(Array(count).keys(), PARALLEL, async index => {
    try {
      const forked = await instances.create({ spec: forkSpec(instance, sha256, timeout * 1000, memory) });
      entries[index] = { sandbox: createdView(sandboxes.of(forked), facts) };
    } catch (error) {
      const known = error instanceof ServiceError ? error : internal('the sandbox did not start', { cause: error });
      const { status, body } = frontendErrors(known);
      entries[index] = { error: { code: status, message: body.message } };
    }
  });
  return entries;
}

/** Returns the spec of a sandbox like another one, with these files. */
function forkSpec(
  { spec, labels }: Instance,
  sha256: string,
  ttlMs: number,
  isWithoutProcesses: boolean,
): InstanceSpec {
  const { user, workingDir, startCommand, readyCommand } = spec.built ?? NEW_TEMPLATE;
  const base = spec.built?.base ?? spec.template ?? NEW_TEMPLATE.base;
  // The start command has ended in a sandbox without processes.
  const commands = isWithoutProcesses ? { startCommand: '', readyCommand: '' } : { startCommand, readyCommand };
  return {
    ...spec,
    labels,
    name: newSandboxName(),
    built: { base, user, workingDir, ...commands },
    mounts: [...spec.mounts.filter(({ target }) => target !== FILES_TARGET), ...filesMount(sha256)],
    ttlMs,
  };
}

/** Fails with `invalid_request` if the sandbox has processes, whose memory a fork would lose. */
async function checkNoProcesses(access: SandboxAccess, signal: AbortSignal): Promise<void> {
  let said = '';
  const command = { script: LIST_PROCESSES, user: 'root', workingDir: '/', env: {} };
  await runCommand(access, command, signal, (kind, data) => {
    if (kind === 'stdout') said += data;
  });
  const [first = '', ...others] = said.trimEnd().split('\n');
  if (first === '') return;
  const more = others.length === 0 ? '' : ` and ${others.length} more`;
  throw invalidRequest(
    `a fork with running processes is not supported by this service, because it copies files, not memory; the ` +
      `sandbox runs: ${first.trim()}${more}; end them first, or use create_snapshot(mode="filesystem") and create`,
  );
}

import type { AgentInstances, CreateInstance } from '../agents/contract.ts';
import { failedPrecondition, internal, invalidRequest, ServiceError } from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import { timeoutSignal } from '../lib/deadline.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import { FILES_TARGET } from '../templates/built.ts';
import { runCommand } from '../templates/command.ts';
import { filesMount, newSandboxName } from './e2b/specs.ts';
import { NEW_TEMPLATE } from './e2b/template-builds.ts';
import { type SandboxFilesOptions, storeSandboxFiles } from './sandbox-files.ts';

export interface ForksOptions extends SandboxFilesOptions {
  readonly instances: Pick<AgentInstances, 'access' | 'create'>;
  /** Bound of reading and storing the files. */
  readonly timeoutMs: number;
}

/** Forks that are wanted of a sandbox. */
export interface WantedForks {
  readonly count: number;
  /** True if forks start although the sandbox runs processes. */
  readonly isFilesOnly: boolean;
  /** Advice about processes, for the error: the part after "end them first, or". */
  readonly insteadOfEnding: string;
  /** Returns the members of the spec in which the fork with this index, from 0 on, differs. */
  readonly changeOf: (index: number) => Partial<InstanceSpec>;
  /** Absent: repeated requests make further forks. */
  readonly idempotencyOf?: (index: number) => CreateInstance['idempotency'];
}

/** A sandbox that was made, or the reason why it was not. */
export type ForkOutcome = { readonly instance: Instance } | { readonly error: ServiceError };

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

/**
 * Starts sandboxes with the files, variables and labels of `original`, a sandbox without code. Returns an
 * outcome for each. Fails with `failed_precondition` if the original does not run or has an image, and with
 * `invalid_request` if it runs processes.
 */
export async function forkSandbox(
  original: Instance,
  { count, isFilesOnly, insteadOfEnding, changeOf, idempotencyOf }: WantedForks,
  { instances, timeoutMs, ...stores }: ForksOptions,
): Promise<readonly ForkOutcome[]> {
  const { tenant, rootfs } = original.spec;
  if (rootfs.type === 'image') {
    throw failedPrecondition('sandboxes of images cannot be forked: their files are not copied');
  }
  const access = await instances.access(tenant, original.id);
  const signal = timeoutSignal(timeoutMs);
  if (!isFilesOnly) await checkNoProcesses(access, insteadOfEnding, signal);
  const spec = forkSpec(original, await storeSandboxFiles(stores, tenant, access, signal), !isFilesOnly);
  const outcomes: ForkOutcome[] = [];
  await forEachOf(Array(count).keys(), PARALLEL, async index => {
    const idempotency = idempotencyOf?.(index);
    const wanted = { ...spec, name: newSandboxName(), ...changeOf(index) };
    try {
      outcomes[index] = { instance: await instances.create({ spec: wanted, ...(idempotency && { idempotency }) }) };
    } catch (error) {
      const known = error instanceof ServiceError ? error : internal('the sandbox did not start', { cause: error });
      outcomes[index] = { error: known };
    }
  });
  return outcomes;
}

/** Returns the spec of a sandbox like another one, with these files. */
function forkSpec({ spec, labels }: Instance, sha256: string, isWithoutProcesses: boolean): InstanceSpec {
  const { user, workingDir, startCommand, readyCommand } = spec.built ?? NEW_TEMPLATE;
  const base = spec.built?.base ?? spec.template ?? NEW_TEMPLATE.base;
  // The start command has ended in a sandbox without processes.
  const commands = isWithoutProcesses ? { startCommand: '', readyCommand: '' } : { startCommand, readyCommand };
  return {
    ...spec,
    labels,
    built: { base, user, workingDir, ...commands },
    mounts: [...spec.mounts.filter(({ target }) => target !== FILES_TARGET), ...filesMount(sha256)],
  };
}

/** Fails with `invalid_request` if the sandbox has processes, whose memory a fork would lose. */
async function checkNoProcesses(access: SandboxAccess, instead: string, signal: AbortSignal): Promise<void> {
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
      `sandbox runs: ${first.trim()}${more}; end them first, or ${instead}`,
  );
}

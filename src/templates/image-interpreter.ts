import { failedPrecondition, ServiceError } from '../core/error.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { IMAGE_SANDBOX_TYPE } from '../core/sandbox-types.ts';
import { pause } from '../lib/backoff.ts';
import { timeoutSignal } from '../lib/deadline.ts';
import type { ProcessEnd, SandboxAccess } from '../sandbox/access.ts';
import { PROGRAMS } from './sandbox.ts';
import { INTERPRETER, interpreterArguments } from './templates.ts';

const START_MS = 20_000;
const PAUSE_MS = 50;
const MAX_SAID_CHARS = 500;
/** Exit code of a shell for a program that does not exist. */
const NOT_FOUND = 127;
/** The shell gives a missing program its code, which a start without it does not. */
const RUN = 'command -v python3 > /dev/null 2>&1 || exit 127; exec python3 "$@"';

/** Returns true if a request to `port` of the sandbox is one to the interpreter of an image. */
export function isImageInterpreter(spec: Pick<InstanceSpec, 'template' | 'sandboxType'>, port: number): boolean {
  return spec.template !== undefined && spec.sandboxType === IMAGE_SANDBOX_TYPE && port === INTERPRETER.port;
}

/**
 * Starts the code interpreter in a sandbox of an image, with its Python, unless it listens. Only requests to
 * the interpreter start it, because most sandboxes of images need none. Fails with `failed_precondition` if
 * the image cannot run it.
 */
export async function startImageInterpreter(
  access: SandboxAccess,
  { template }: Pick<InstanceSpec, 'template'>,
  caller: AbortSignal,
): Promise<void> {
  if (await listens(access, caller)) return;
  const signal = AbortSignal.any([caller, timeoutSignal(START_MS)]);
  const argv = ['/bin/sh', '-c', RUN, 'sh', ...interpreterArguments(PROGRAMS)];
  const request = { argv, user: 'user', env: {}, workingDir: '', terminal: null, stdin: false, timeLimitMs: 0 };
  const process = await access.startProcess({ ...request, tag: 'code-interpreter', hidden: true }, signal);
  let said = '';
  let end: ProcessEnd | null = null;
  const reading = (async () => {
    for await (const { data } of process.output) said = (said + data).slice(-MAX_SAID_CHARS);
    end = await process.ended;
  })();
  reading.catch(() => undefined);
  process.ended.catch(() => undefined);
  const failed = (why: string) =>
    failedPrecondition(`the code interpreter does not start in the image ${template}: ${why}`);
  try {
    for (;;) {
      // Of two that start at once the second one ends, because the first has the port.
      const ended = end as ProcessEnd | null;
      if (await listens(access, signal)) return;
      if (ended?.code === NOT_FOUND) throw failed('the image has no python3');
      if (ended !== null) throw failed(said.trim().split('\n').at(-1) || 'its python3 ended');
      if (signal.aborted) throw failed(`it does not listen after ${START_MS / 1000} s`);
      await pause(PAUSE_MS, signal);
    }
  } finally {
    process.close();
  }
}

async function listens(access: SandboxAccess, signal: AbortSignal): Promise<boolean> {
  try {
    (await access.dial(INTERPRETER.port, signal)).destroy();
    return true;
  } catch (error) {
    if (error instanceof ServiceError && ['unavailable', 'deadline_exceeded'].includes(error.code)) return false;
    throw error;
  }
}

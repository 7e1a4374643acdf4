import { setTimeout as delay } from 'node:timers/promises';
import { failedPrecondition } from '../core/error.ts';
import type { BuiltTemplate } from '../core/template.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import { type CommandOutput, describeEnd, processOf, runCommand, type TemplateCommand } from './command.ts';

/** Directory inside with the package of a template's files, and the file in it. */
export const FILES_TARGET = '/opt/rookery/template';
export const FILES_NAME = 'files';
/** Directory for packages that Python programs of templates install, because `/usr` belongs to the host. */
const PYTHON_PACKAGES = '/opt/python';
const NODE_PACKAGES = '/opt/node';

/** Returns the variables of sandboxes with a built template. `path` is the PATH of other sandboxes. */
export function builtVariables(path: string): Readonly<Record<string, string>> {
  return {
    PATH: `${PYTHON_PACKAGES}/bin:${NODE_PACKAGES}/bin:${path}`,
    PYTHONUSERBASE: PYTHON_PACKAGES,
    PIP_BREAK_SYSTEM_PACKAGES: '1',
    NPM_CONFIG_PREFIX: NODE_PACKAGES,
  };
}

/** Time of the placement. Entries that changed later belong to the template. */
const PLACED = '/run/e2b/.placed';
/**
 * The pause is longer than a tick of the clock of files. Directories that exist keep their owner and mode.
 */
const PLACE = `set -e
: > ${PLACED}
sleep 0.02
[ ! -e ${FILES_TARGET}/${FILES_NAME} ] || tar -xp --no-overwrite-dir -f ${FILES_TARGET}/${FILES_NAME} -C /`;
/**
 * Writes an archive of changed entries. Leaves out mounts, which are on other devices, and the files of
 * `/etc` that the service writes.
 */
const COLLECT = `set -o pipefail
export LC_ALL=C
chown -R user:user ${PYTHON_PACKAGES} ${NODE_PACKAGES} 2>/dev/null
cd /
since=${PLACED}
[ -e "$since" ] || since=/run/e2b/.E2B_SANDBOX
changed() {
  find "$@" -xdev \\( -path ./dev -o -path ./opt/rookery -o -path ./proc -o -path ./run -o -path ./sys -o -path ./usr \\
    -o -path ./etc/passwd -o -path ./etc/group -o -path ./etc/resolv.conf \\) -prune -o ! -type s -cnewer "$since" \\
    -printf '%D %p\\0' | sed -z -n "s/^$(stat -c %d "$1") //p"
}
{ changed . && changed ./etc; } | tar -c --no-recursion --null --warning=none -T -
[ $? -le 1 ] || exit 2`;

const asRoot = (script: string): TemplateCommand => ({ script, user: 'root', workingDir: '/', env: {} });
const MAX_SAID_CHARS = 2000;

/**
 * Writes the files of a template into a sandbox, from the package at `FILES_TARGET` if there is one. Must run
 * before anything else changes the sandbox. Fails with `failed_precondition`.
 */
export async function placeFiles(access: SandboxAccess, signal: AbortSignal): Promise<void> {
  const said: string[] = [];
  const end = await runCommand(access, asRoot(PLACE), signal, (_kind, data) => void said.push(String(data)));
  if (end.code === 0) return;
  const why = said.join('').slice(-MAX_SAID_CHARS).trim();
  throw failedPrecondition(`the files of the template cannot be placed: tar ${describeEnd(end)}: ${why}`);
}

/**
 * Passes an archive of the files that a sandbox has in addition to those of the host to `output`. Fails with
 * `failed_precondition`.
 */
export async function collectFiles(
  access: SandboxAccess,
  output: (data: Buffer) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  let said = '';
  const listener: CommandOutput = async (kind, data) => {
    if (kind === 'stdout') await output(data);
    else said = (said + data).slice(-MAX_SAID_CHARS);
  };
  const end = await runCommand(access, asRoot(COLLECT), signal, listener);
  if (end.code === 0) return;
  throw failedPrecondition(`the files of the sandbox cannot be read: tar ${describeEnd(end)}: ${said.trim()}`);
}

const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 1000;

/**
 * Starts the command of a template and waits until the template is ready. `env` is added to the variables of
 * the sandbox. Fails with `failed_precondition` if
 * the start command ends with an error before, and as `signal` does.
 */
export async function startBuilt(
  access: SandboxAccess,
  template: BuiltTemplate,
  env: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<void> {
  const { startCommand, readyCommand, user, workingDir } = template;
  const command = (script: string): TemplateCommand => ({ script, user, workingDir, env });
  let failure: string | null = null;
  if (startCommand !== '') {
    const process = await access.startProcess({ ...processOf(command(startCommand), 0), tag: 'start' }, signal);
    process.ended.then(
      end => {
        if (end.code !== 0) failure = `the start command ${describeEnd(end)}`;
      },
      () => undefined,
    );
    // Nothing reads the output: the process would otherwise wait for this listener.
    void drain(process.output);
    signal.addEventListener('abort', () => process.close(), { once: true });
    try {
      await untilReady();
    } finally {
      process.close();
    }
  } else await untilReady();

  async function untilReady(): Promise<void> {
    if (readyCommand === '') return;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      const { code } = await runCommand(access, command(readyCommand), signal);
      if (code === 0) return;
      if (failure !== null) throw failedPrecondition(failure);
      await delay(pauseMs, undefined, { signal });
    }
  }
}

async function drain(output: AsyncIterable<unknown>): Promise<void> {
  try {
    for await (const _ of output);
  } catch {
    // The end of the process is reported elsewhere.
  }
}

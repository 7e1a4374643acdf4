import { posix } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { pairsOf, type TemplateStep } from '../core/e2b-templates.ts';
import { failedPrecondition } from '../core/error.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import { FILES_NAME } from './built.ts';
import { describeEnd, runCommand } from './command.ts';
import { missingOnHost, systemPackagesOf } from './system-packages.ts';

/** Settings that the steps so far have made. */
export interface StepState {
  readonly user: string;
  readonly workingDir: string;
  /** Variables of the template. */
  readonly env: Readonly<Record<string, string>>;
}

export interface StepContext {
  readonly access: SandboxAccess;
  readonly signal: AbortSignal;
  /** True if the sandbox shows the programs of the host; false if it has those of an image. */
  readonly isOnHost: boolean;
  /** Variables of the sandbox, which values of ENV may refer to. */
  readonly sandboxEnv: Readonly<Record<string, string>>;
  /** Variables of the steps' commands that the template does not keep. */
  readonly buildEnv: Readonly<Record<string, string>>;
  /** Receives whole lines of output. */
  readonly line: (text: string, kind: 'stdout' | 'stderr') => void;
}

/** Returns the directory inside with the uploaded files of a COPY. */
export function uploadTarget(filesHash: string): string {
  return `/opt/rookery/upload/${filesHash}`;
}

/** Runs a step. Returns the state after it. Fails with `failed_precondition`. */
export async function runStep(step: TemplateStep, state: StepState, context: StepContext): Promise<StepState> {
  const [first = '', second = ''] = step.args;
  switch (step.type) {
    case 'RUN':
      if (context.isOnHost && (await hostHas(first, context))) return state;
      await run({ script: first, state, context, user: second || state.user });
      return state;
    case 'COPY':
      await copy(step, state, context);
      return state;
    case 'WORKDIR': {
      const workingDir = inDirectory(first, state);
      await make(workingDir, state, context);
      return { ...state, workingDir };
    }
    case 'USER':
      return { ...state, user: await findUser(first, state, context) };
    case 'ENV': {
      const known = { ...context.sandboxEnv, ...state.env };
      const added = pairsOf(step.args).map(([name, value]) => [name, expand(value, known)] as const);
      return { ...state, env: { ...state.env, ...Object.fromEntries(added) } };
    }
  }
}

/** Describes a step in one line, as the log shows it. The user of a command would look like an argument. */
export function describeStep({ type, args }: TemplateStep): string {
  const shown = type === 'RUN' ? args.slice(0, 1) : args;
  return `${type} ${shown.filter(arg => arg !== '').join(' ')}`.replaceAll(/\s+/g, ' ').slice(0, MAX_TITLE_CHARS);
}

const MAX_TITLE_CHARS = 200;
/** Programs that install into directories of the host. */
const SYSTEM_PACKAGES = /(^|[\s;&|(])(apt|apt-get|aptitude|dpkg|apk|yum|dnf)\s/;
const NO_SYSTEM_PACKAGES =
  'packages of the system cannot be installed into this sandbox, because /usr belongs to the host: install them on the host';

/** Output of dpkg for a program whose set-user-id or set-group-id bit the rules of system calls forbid. */
const NO_ID_BITS = /error setting permissions of '([^']*)'/;

/**
 * Returns true if a command only installs packages of the system that the host has: `/usr` is that of the
 * host, so nothing is left to do.
 */
async function hostHas(script: string, { line }: StepContext): Promise<boolean> {
  const wanted = systemPackagesOf(script);
  if (wanted.length === 0 || (await missingOnHost(wanted)).length > 0) return false;
  line(`nothing to do, because /usr belongs to the host, which has ${wanted.join(', ')}`, 'stdout');
  return true;
}

/** Returns the packages that the host lacks, as the end of a message; `''` if it is not known. */
async function describeMissing(script: string): Promise<string> {
  const wanted = systemPackagesOf(script);
  const missing = wanted.length === 0 ? [] : await missingOnHost(wanted);
  return missing.length === 0 ? '' : ` (missing there: ${missing.join(', ')})`;
}

interface Run {
  readonly script: string;
  readonly args?: readonly string[];
  readonly state: StepState;
  readonly context: StepContext;
  readonly user: string;
}

async function run({ script, args, state, context, user }: Run): Promise<void> {
  const { access, signal, buildEnv, isOnHost } = context;
  let hint = '';
  const listener = (kind: 'stdout' | 'stderr') => (text: string) => {
    const [, file = ''] = NO_ID_BITS.exec(text) ?? [];
    if (file !== '')
      hint = `; ${file} of the package runs with rights of another account, which no sandbox allows: leave it out`;
    context.line(text, kind);
  };
  const lines = { stdout: new Lines(listener('stdout')), stderr: new Lines(listener('stderr')) };
  const env = { ...buildEnv, ...state.env };
  const command = { script, user, workingDir: state.workingDir, env, ...(args && { args }) };
  const end = await runCommand(access, command, signal, (kind, data) => lines[kind].add(data));
  lines.stdout.end();
  lines.stderr.end();
  if (end.code === 0) return;
  if (isOnHost && SYSTEM_PACKAGES.test(script)) hint = `; ${NO_SYSTEM_PACKAGES}${await describeMissing(script)}`;
  const said = [lines.stderr.reason || lines.stdout.reason].filter(text => text !== '').map(text => `: ${text}`);
  throw failedPrecondition(`the command ${describeEnd(end)}${said.join('')}${hint}`);
}

/**
 * Copies the contents of directories, and files: to `dest/` if it is a directory or ends with a slash. Shells
 * other than Bash, which images may have, find neither hidden files nor `**`.
 */
const COPY = `set -e
[ -z "\${BASH_VERSION-}" ] || shopt -s dotglob globstar nullglob
upload=$1 source=$2 target=$3 owner=$4 mode=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xf "$upload" -C "$work" --no-same-owner
cd "$work"
chown -R "$owner" .
[ -z "$mode" ] || chmod -R "$mode" .
case $source in
  *[*?[]*) IFS= ; set -- $source ;;
  *) set -- "$source" ;;
esac
directory() { [ -d "$1" ] || { mkdir -p -- "$1"; chown "$owner" "$1"; }; }
for each; do
  each=./$each
  [ -e "$each" ] || [ -L "$each" ] || { echo "$source is not among the uploaded files" >&2; exit 1; }
  if [ -d "$each" ] && [ ! -L "$each" ]; then directory "$target"; cp -a -- "$each/." "$target/"
  elif [ "$#" -gt 1 ] || [ -d "$target" ] || [ "\${target%/}" != "$target" ]; then
    directory "$target"; cp -a -- "$each" "$target/"
  else directory "$(dirname -- "$target")"; cp -a -- "$each" "$target"
  fi
done`;

async function copy(step: TemplateStep, state: StepState, context: StepContext): Promise<void> {
  const [source = '', sent = '', owner = '', mode = ''] = step.args;
  const slash = sent.endsWith('/') ? '/' : '';
  const target = `${inDirectory(sent, state).replace(/(.)\/+$/, '$1')}${slash}`;
  const args = [
    `${uploadTarget(step.filesHash)}/${FILES_NAME}`,
    ...[posix.normalize(source).replace(/^\/+/, ''), target, owner === '' ? state.user : owner, mode],
  ];
  await run({ script: COPY, args, state: { ...state, workingDir: '/' }, context, user: 'root' });
}

async function make(directory: string, state: StepState, context: StepContext): Promise<void> {
  const script = '[ -d "$1" ] || { mkdir -p -- "$1" && chown "$2" "$1"; }';
  const args = [directory, state.user];
  await run({ script, args, state: { ...state, workingDir: '/' }, context, user: 'root' });
}

/** Returns the name of an account, which may be sent as `1000` or `node:node`. Ignores the group. */
async function findUser(sent: string, state: StepState, context: StepContext): Promise<string> {
  const user = sent.replace(/:.*$/, '');
  let found = '';
  const line = (text: string, kind: 'stdout' | 'stderr') => {
    if (kind === 'stdout') found = text;
    else context.line(text, kind);
  };
  const script = 'id -un -- "$1"';
  await run({
    script,
    args: [user],
    state: { ...state, workingDir: '/' },
    context: { ...context, line },
    user: 'root',
  });
  return /^\d+$/.test(user) ? found : user;
}

/** Returns an absolute path; a relative one begins at the working directory. */
function inDirectory(path: string, { user, workingDir }: StepState): string {
  const home = user === 'root' ? '/root' : `/home/${user}`;
  const plain = path === '~' || path.startsWith('~/') ? home + path.slice(1) : path;
  return posix.resolve(workingDir === '' ? home : workingDir, plain);
}

/** Replaces `$NAME` and `${NAME}` by the variable, or by nothing. */
export function expand(value: string, known: Readonly<Record<string, string>>): string {
  return value.replaceAll(/\$(?:\{(\w+)\}|(\w+))/g, (_all, braced, plain) => known[braced ?? plain] ?? '');
}

const MAX_LINE_CHARS = 4096;
const KEPT_LINES = 6;
const NPM_LOG_FILE = /^npm (error|ERR!) A complete log of this run can be found in/;

/** Cuts output into lines. */
class Lines {
  #rest = '';
  /** Last lines that are not blank. */
  #last: readonly string[] = [];
  readonly #decoder = new StringDecoder('utf8');
  readonly #line: (text: string) => void;

  constructor(line: (text: string) => void) {
    this.#line = line;
  }

  /** The last line, or the last lines of npm, which ends with the name of a file inside. */
  get reason(): string {
    const last = this.#last.at(-1) ?? '';
    return NPM_LOG_FILE.test(last) ? this.#last.slice(0, -1).join('; ') : last;
  }

  add(data: Buffer): void {
    const lines = (this.#rest + this.#decoder.write(data)).split(/\r?\n|\r/);
    this.#rest = lines.pop() ?? '';
    for (const text of lines) this.#report(text);
    while (this.#rest.length > MAX_LINE_CHARS) {
      this.#report(this.#rest.slice(0, MAX_LINE_CHARS));
      this.#rest = this.#rest.slice(MAX_LINE_CHARS);
    }
  }

  end(): void {
    if (this.#rest !== '') this.#report(this.#rest);
    this.#rest = '';
  }

  #report(text: string): void {
    if (text.trim() !== '') this.#last = [...this.#last, text.slice(0, MAX_LINE_CHARS)].slice(-KEPT_LINES);
    if (text !== '') this.#line(text.slice(0, MAX_LINE_CHARS));
  }
}

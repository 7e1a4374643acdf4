import { failAtFirst, type JsonObject } from './json.ts';
import { type Kind, oneOf, refine, text } from './kind.ts';
import { type RequestedSandboxType, SANDBOX_TYPES } from './sandbox-types.ts';
import { object, optional, required, type ValueOf } from './shape.ts';

/**
 * Selects the dependencies that are installed. `auto`: those that the files beside the code declare; `''`:
 * none.
 */
export type DependencyMode = '' | 'auto';

/** Reads `none` as `''`, the value of an absent field. */
export const dependencyMode: Kind<DependencyMode> = {
  describe: () => ({ enum: ['', 'none', 'auto'] }),
  read(value, path, problem) {
    const read = oneOf(['', 'none', 'auto']).read(value, path, problem);
    return read === undefined ? undefined : read === 'auto' ? 'auto' : '';
  },
};

export const DEPENDENCIES_DOC =
  '`auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing.';

/** Returns the tool that installs dependencies for this runtime, or null if none exists. */
export function installerOf(runtime: string): 'pip' | 'npm' | null {
  if (/^python3\.\d+$/.test(runtime)) return 'pip';
  return /^nodejs\d*$/.test(runtime) ? 'npm' : null;
}

/** Files beside the code that declare dependencies, by tool. */
export const DEPENDENCY_FILES = {
  pip: ['requirements.txt', 'pyproject.toml', 'uv.lock', 'poetry.lock'],
  npm: ['package.json', 'package-lock.json', 'npm-shrinkwrap.json'],
} as const;

const FLAG = /^(-[rcef]|--(?:requirement|constraint|editable|find-links))(?:[=\s]+|(?=[^\s=-]))?(.*)$/s;
const SHORT = /^-[rcef]/;
const URL_LIKE = /^(?:[a-z][a-z0-9+.-]*:|\/|~)/i;
const ARCHIVE = /\.(?:whl|zip|tar|tgz|tbz|txz|tar\.(?:gz|bz2|xz|lzma|Z))$/i;
/** Ray replaces this word with the working directory before it calls pip. */
const WORKING_DIR = 'RAY_RUNTIME_ENV_CREATE_WORKING_DIR';

/** Returns true if a line of a requirements list names a file relative to the working directory. */
export function namesFile(line: string): boolean {
  const text = line.replace(/(^|\s)#.*$/, '').trim();
  if (text.includes(WORKING_DIR)) return true;
  const flag = FLAG.exec(text);
  if (flag !== null && isFlag(flag)) return flag[2] === '' || isRelative(flag[2] ?? '');
  if (text.startsWith('-')) return false;
  const [path = ''] = text.split(/\s*[;@[]|\s/);
  return isRelative(path) && (/^\.|\//.test(path) || ARCHIVE.test(path));
}

/** Returns the index of the first pip argument that names such a file, or -1. */
export function indexOfFile(args: readonly string[]): number {
  return args.findIndex((text, at) => {
    const flag = FLAG.exec(text);
    const isAlone = flag !== null && isFlag(flag) && flag[2] === '';
    if (isAlone) return isRelative(args[at + 1] ?? '');
    // The value of another option, `--cache-dir ./cache`.
    const isValue = !text.startsWith('-') && !ARCHIVE.test(text) && args[at - 1]?.startsWith('-') === true;
    return (!isValue || text.includes(WORKING_DIR)) && namesFile(text);
  });
}

/** Returns true for a flag that names a file: `-rfile` is one, `--requirements` is none. */
function isFlag([text, flag = '', value = '']: RegExpExecArray): boolean {
  return SHORT.test(flag) || value === '' || /^[=\s]/.test(text.slice(flag.length));
}

function isRelative(path: string): boolean {
  return path.includes(WORKING_DIR) || (path !== '' && !URL_LIKE.test(path));
}

const sandboxType: Kind<RequestedSandboxType> = {
  ...refine(text() as Kind<RequestedSandboxType>, (value, path, problem) => {
    if (value === '' || (SANDBOX_TYPES as readonly string[]).includes(value)) return;
    problem(path, `must be one of ${SANDBOX_TYPES.join(', ')} or empty, got "${value}"`);
  }),
  describe: () => ({ enum: ['', ...SANDBOX_TYPES] }),
};

const BUILD_FIELDS = {
  source: required(text({ required: true }), {
    description: 'The code: `code://<sha256>`, or a directory of the host.',
  }),
  runtime: required(text({ required: true }), { examples: ['python3.11'] }),
  sandbox_type: optional(sandboxType, '', 'Of what will run it. Empty: the default executor.'),
};

/** The body of a build, which installs the dependencies of some code in advance. */
export const BUILD = object<ValueOf<typeof BUILD_FIELDS>>(BUILD_FIELDS);

/** Reads the body of a build. Fails with `invalid_request`. */
export function readBuild(body: JsonObject): ValueOf<typeof BUILD_FIELDS> {
  return BUILD.read(body, '', failAtFirst) as ValueOf<typeof BUILD_FIELDS>;
}

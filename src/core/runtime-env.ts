import { isAbsolute } from 'node:path';
import { indexOfFile, namesFile } from './dependencies.ts';
import { ENVIRONMENT_NAMES, environmentNameProblem, variables } from './environment.ts';
import { invalidRequest } from './error.ts';
import { failAtFirst, invalidBody, type JsonObject } from './json.ts';
import { anyObject, boolean, described, type Kind, list, refine, type Schema, text, wrongAt } from './kind.ts';
import { MAX_QUOTED_CHARS } from './problem.ts';
import { type Variables, variable } from './secret.ts';
import { Form, object, optional, required, type ValueOf } from './shape.ts';

/** The source of a job's files. */
export type FileSource =
  /** An uploaded package: `gcs://<name>`. */
  | { readonly kind: 'package'; readonly name: string }
  /** A directory or an archive of the host. */
  | { readonly kind: 'host'; readonly path: string };

export interface PipRequirements {
  readonly packages: readonly string[];
  readonly check: boolean;
  /** A version of pip itself, as `==24.0`; `''`: the installed version. */
  readonly pipVersion: string;
  readonly options: readonly string[];
}

/** The supported part of `runtime_env`. */
export interface RuntimeEnv {
  readonly envVars: Variables;
  readonly workingDir: FileSource | null;
  readonly pyModules: readonly FileSource[];
  /** Null: the job requests none. */
  readonly pip: PipRequirements | null;
}

/** Keys of Ray that this service does not support. Ignoring them would change the meaning of the job. */
const UNSUPPORTED = [
  'conda',
  'container',
  'image_uri',
  'java_jars',
  'mpi',
  'nsight',
  'py_executable',
  'rocprof_sys',
  'uv',
  'worker_process_setup_hook',
] as const;
const PACKAGE_NAME = /^[A-Za-z0-9_][A-Za-z0-9._+-]{0,254}$/;
const MAX_MODULES = 100;
const MAX_REQUIREMENTS = 1000;

/** Returns true if an uploaded package may have this name. */
export function isPackageName(name: string): boolean {
  return PACKAGE_NAME.test(name);
}

/** Single-line requirements, because they become lines of a requirements file. */
const packageList = refine(list(text(), MAX_REQUIREMENTS), (packages, path, problem) => {
  packages.forEach((line, index) => {
    if (/[\r\n]/.test(line)) problem(`${path}[${index}]`, 'must be one line');
    else if (namesFile(line)) problem(`${path}[${index}]`, fileProblem(line));
  });
});

const pipOptions = refine(list(text()), (options, path, problem) => {
  const index = indexOfFile(options);
  if (index !== -1) problem(`${path}[${index}]`, fileProblem(options[index] ?? ''));
});

function fileProblem(line: string): string {
  const named = JSON.stringify(line.slice(0, MAX_QUOTED_CHARS));
  return `names a file (${named}), and no file of the working directory exists when the environment is made: name the packages`;
}

const pipObject = object(
  {
    packages: required(packageList),
    pip_check: optional(boolean, false),
    pip_version: optional(text(), ''),
    pip_install_options: optional(pipOptions, []),
  },
  { isFree: true },
);

const pip: Kind<PipRequirements> = {
  describe: () => ({ anyOf: [packageList.describe(), pipObject.describe()] }),
  read(value, path, problem) {
    if (typeof value === 'string') {
      return wrongAt(path, 'must be a list of requirements, or an object with packages', problem);
    }
    if (Array.isArray(value)) {
      const packages = packageList.read(value, path, problem);
      return packages && { check: false, pipVersion: '', options: [], packages };
    }
    const read = pipObject.read(value, path, problem);
    if (read === undefined) return undefined;
    const { packages, pip_check, pip_version, pip_install_options } = read;
    return { packages, check: pip_check, pipVersion: pip_version, options: pip_install_options };
  },
};

const SOURCE_PATTERN = `^gcs://${PACKAGE_NAME.source.slice(1, -1)}$|^((file|local)://)?/((?!://)[^\\u0000])*$`;

const FIELDS = {
  env_vars: optional(variables(variable(text()), { pattern: ENVIRONMENT_NAMES.pattern }), {}),
  working_dir: optional(text(), '', {
    pattern: `${SOURCE_PATTERN}|^$`,
    description: '`gcs://<an uploaded package>`, or a path of the host where the service allows it.',
  }),
  py_modules: optional(list(described(text(), { pattern: SOURCE_PATTERN }), MAX_MODULES), [], 'Each as `working_dir`.'),
  pip: optional<PipRequirements | null>(pip, null),
};

const KNOWN = object<ValueOf<typeof FIELDS>>(FIELDS);

/**
 * The unchecked value. The body's check covers only the type; `readRuntimeEnv` checks the rest. The document
 * describes `pip` only in words, because API testing tools would otherwise try to install packages that do
 * not exist.
 */
export const RUNTIME_ENV: Kind<JsonObject> = {
  ...anyObject,
  describe(options) {
    const { pip: _words, ...known } = KNOWN.describe(options).properties as Record<string, Schema>;
    const refused = UNSUPPORTED.map(key => [
      key,
      { type: 'null', description: 'Refused: it cannot be honoured here.' },
    ]);
    return {
      ...anyObject.describe(),
      description:
        '`pip` is a list of requirements, or an object with `packages`, `pip_check`, `pip_version` and `pip_install_options`; docs/guides/jobs.md says more. Other keys are kept and ignored.',
      properties: { ...known, ...Object.fromEntries(refused) },
    };
  },
};

/** Reads a `runtime_env`. Fails with `invalid_request`. */
export function readRuntimeEnv(value: unknown, path: string): RuntimeEnv {
  const form = new Form(KNOWN, value, path, failAtFirst);
  const unsupported = UNSUPPORTED.filter(key => ((value as JsonObject)[key] ?? null) !== null);
  if (unsupported.length > 0) {
    throw invalidRequest(
      `${path} has keys that cannot be honoured here: ${unsupported.join(', ')}; working_dir, py_modules, env_vars and pip can`,
    );
  }
  const { env_vars } = form.read('env_vars');
  for (const name of Object.keys(env_vars)) {
    const problem = environmentNameProblem(name);
    if (problem !== undefined) throw invalidBody(`${path}.env_vars.${name.slice(0, MAX_QUOTED_CHARS)} ${problem}`);
  }
  const { working_dir, py_modules } = form.read('working_dir', 'py_modules');
  return {
    envVars: env_vars,
    workingDir: working_dir === '' ? null : readSource(working_dir, form.at('working_dir')),
    pyModules: py_modules.map((uri, index) => readSource(uri, `${path}.py_modules[${index}]`)),
    pip: form.read('pip').pip,
  };
}

/** Returns the uploaded packages that a job needs. */
export function packagesOf({ workingDir, pyModules }: RuntimeEnv): readonly string[] {
  return [workingDir, ...pyModules].flatMap(source => (source?.kind === 'package' ? [source.name] : []));
}

function readSource(uri: string, path: string): FileSource {
  if (uri.startsWith('gcs://')) {
    const name = uri.slice('gcs://'.length);
    if (!isPackageName(name)) throw invalidBody(`${path} must name an uploaded package, got ${quote(uri)}`);
    return { kind: 'package', name };
  }
  const hostPath = uri.replace(/^(file|local):\/\//, '');
  if (!hostPath.includes('://') && isAbsolute(hostPath)) return { kind: 'host', path: hostPath };
  throw invalidBody(
    `${path} must be an uploaded package (gcs://…) or, where the service allows it, an absolute path of its host, got ${quote(uri)}`,
  );
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 120));
}

import { isAbsolute } from 'node:path';
import { environmentNameProblem } from './environment.ts';
import { invalidRequest } from './error.ts';
import { Fields, invalidBody } from './json.ts';

/** Where files of a job come from. */
export type FileSource =
  /** An uploaded package: `gcs://<name>`. */
  | { readonly kind: 'package'; readonly name: string }
  /** A directory or an archive of the host. */
  | { readonly kind: 'host'; readonly path: string };

export interface PipRequirements {
  readonly packages: readonly string[];
  readonly check: boolean;
  /** A version of pip itself, as `==24.0`; `''`: the one that there is. */
  readonly pipVersion: string;
  readonly options: readonly string[];
}

/** `runtime_env`, as far as it can be honoured. */
export interface RuntimeEnv {
  readonly envVars: Readonly<Record<string, string>>;
  readonly workingDir: FileSource | null;
  readonly pyModules: readonly FileSource[];
  /** null: none asked for. */
  readonly pip: PipRequirements | null;
}

/** Keys of Ray that mean something that cannot be had here; ignoring them would run something else than what was asked for. */
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

/** What may be the name of an uploaded package. */
export function isPackageName(name: string): boolean {
  return PACKAGE_NAME.test(name);
}

/** Fails with `invalid_request`. Keys that Ray does not know, and those that begin with `_`, are ignored; so are `config` and `excludes`. */
export function readRuntimeEnv(value: unknown, path: string): RuntimeEnv {
  const fields = Fields.freeForm(value, path);
  const unsupported = UNSUPPORTED.filter(key => fields.has(key));
  if (unsupported.length > 0) {
    throw invalidRequest(
      `${path} has keys that cannot be honoured here: ${unsupported.join(', ')}; working_dir, py_modules, env_vars and pip can`,
    );
  }
  const envVars = fields.textMap('env_vars') ?? {};
  for (const name of Object.keys(envVars)) {
    const problem = environmentNameProblem(name);
    if (problem !== undefined) throw invalidBody(`${path}.env_vars.${name.slice(0, 80)} ${problem}`);
  }
  const workingDir = fields.text('working_dir');
  const pyModules = fields.texts('py_modules') ?? [];
  if (pyModules.length > MAX_MODULES) throw invalidBody(`${path}.py_modules must have at most ${MAX_MODULES} items`);
  return {
    envVars,
    workingDir:
      workingDir === undefined || workingDir === '' ? null : readSource(workingDir, fields.pathOf('working_dir')),
    pyModules: pyModules.map((uri, index) => readSource(uri, `${path}.py_modules[${index}]`)),
    pip: readPip(fields),
  };
}

/** The uploaded packages that a job needs. */
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

function readPip(fields: Fields): PipRequirements | null {
  if (!fields.has('pip')) return null;
  const all = { check: false, pipVersion: '', options: [] };
  const where = fields.pathOf('pip');
  if (fields.isList('pip')) return { ...all, packages: checked(fields.texts('pip') ?? [], where) };
  if (fields.isText('pip')) throw invalidBody(`${where} must be a list of requirements, or an object with packages`);
  const pip = fields.object('pip');
  const packages = pip?.texts('packages');
  if (packages === undefined) throw invalidBody(`${where}.packages is required`);
  return {
    packages: checked(packages, `${where}.packages`),
    check: pip?.boolean('pip_check') ?? false,
    pipVersion: pip?.text('pip_version') ?? '',
    options: pip?.texts('pip_install_options') ?? [],
  };
}

/** One line each: they become a requirements file. */
function checked(packages: readonly string[], path: string): readonly string[] {
  if (packages.length > MAX_REQUIREMENTS) throw invalidBody(`${path} must have at most ${MAX_REQUIREMENTS} items`);
  packages.forEach((text, index) => {
    if (/[\r\n]/.test(text)) throw invalidBody(`${path}[${index}] must be one line`);
  });
  return packages;
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 120));
}

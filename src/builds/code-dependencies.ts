import { createHash, randomUUID } from 'node:crypto';
import { lstat, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { arch, platform } from 'node:os';
import { dirname, join, posix } from 'node:path';
import { parseCodeUrl, splitMounts } from '../core/code-package.ts';
import { installerOf } from '../core/dependencies.ts';
import type { Environment } from '../core/environment.ts';
import { failedPrecondition, messageOf, resourceExhausted, ServiceError } from '../core/error.ts';
import { checkHostPath, type HostPathPolicy, isWithin } from '../core/host-path.ts';
import type { InstanceSpec, MountSpec } from '../core/instance.ts';
import { runsInCluster } from '../core/sandbox-types.ts';
import { withLayer } from '../instances/layer.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import { findPath, type OpenedPath, openEntry, openPath } from '../lib/opened-path.ts';
import { BuildRecords } from './build-records.ts';
import { Layers, type LayersOptions, type Recipe } from './layers.ts';
import { type Manifest, readNodeManifest, readPythonManifest } from './manifest.ts';
import { askPython, VENV_SCRIPT } from './python.ts';
import { findNpm, findUv, type IndexSettings, pythonIndexEnvironment } from './tools.ts';

export interface CodeDependenciesOptions extends Omit<LayersOptions, 'directory' | 'inside'> {
  readonly dataDir: string;
  /** Permission to download packages. False: only existing layers are used. */
  readonly hasNetwork: boolean;
  readonly index: IndexSettings;
  /** Rule for the host paths that clients may name. */
  readonly policy: HostPathPolicy;
  /** Environment of the server. */
  readonly environment: Environment;
  /** Returns `sys.executable` of a Python version (`3.11`). Rejects with a `ServiceError`. */
  readonly python: (version: string) => Promise<string>;
  /** Returns `process.execPath` of the Node.js of a runtime value. Fails with a `ServiceError`. */
  readonly node: (runtime: string) => { readonly path: string; readonly version: string };
  readonly packages: DependencyDirectories;
  /** Directory of Rookery's own programs for builds. */
  readonly programs: string;
  readonly log: Log;
}

interface Building {
  readonly tenant: string;
  readonly done: Promise<void>;
  readonly isOnRecord: Promise<void>;
}

/** Code packages, unpacked on this node. */
export interface DependencyDirectories {
  /**
   * Returns the directory, which stays until `release`. Fails with `failed_precondition` or `unavailable`.
   */
  place(tenant: string, sha256: string, user: string): Promise<string>;
  release(user: string): Promise<void>;
}

/** Properties of an instance that determine its dependencies. */
export type CodeSubject = Pick<
  InstanceSpec,
  'tenant' | 'runtime' | 'codePath' | 'mounts' | 'platformMounts' | 'sandboxType' | 'dependencies'
>;

const VENV = '/opt/rookery/dependencies';
const NODE_LAYER = '/opt/rookery/layer';
const UV = '/opt/rookery/uv';
const COLLECT_MS = 600_000;
const ERROR_LINES = 12;
/**
 * Version of the layout of npm layers. 2: the packages are in the layer itself. In layout 1 they were in its
 * `node_modules`.
 */
const NPM_LAYOUT = 2;
const MAX_BUILDS = 16;
const MAX_BUILDS_OF_TENANT = 4;

/**
 * Dependencies that are installed from the files beside the code. Each tenant, content, runtime, platform and
 * index has one layer, which the first user builds and all mount. The users of layers are stored on disk,
 * because a sandbox may outlive its server.
 */
export class CodeDependencies {
  readonly records: BuildRecords;
  readonly #options: CodeDependenciesOptions;
  readonly #layers: Layers;
  readonly #usesDir: string;
  /** Key of the layer, by user. */
  readonly #users = new Map<string, string>();
  readonly #building = new Map<string, Building>();
  readonly #interval: Interval;

  constructor(options: CodeDependenciesOptions) {
    const root = join(options.dataDir, 'dependencies');
    this.#options = options;
    this.#layers = new Layers({ ...options, directory: join(root, 'layers'), inside: (_source, target) => target });
    this.#usesDir = join(root, 'uses');
    this.records = new BuildRecords(join(root, 'builds'));
    this.#interval = new Interval(COLLECT_MS, () => this.collect());
  }

  /** Registers the users of layers. `living`: the instances of this node, whose layers stay. */
  async start(living: ReadonlySet<string>): Promise<void> {
    await mkdir(this.#usesDir, { recursive: true, mode: 0o700 });
    await this.records.start();
    for (const user of await readdir(this.#usesDir)) {
      const key = await readFile(join(this.#usesDir, user), 'utf8').catch(() => '');
      const [instanceId = ''] = user.split('.');
      if (key !== '' && living.has(instanceId)) this.#useLayer(user, key);
      else await rm(join(this.#usesDir, user), { force: true });
    }
    await this.#layers.start();
    await this.#removeOldLayouts();
    this.#interval.start();
  }

  async close(): Promise<void> {
    this.#layers.close();
    await Promise.allSettled([...this.#building.values()].map(({ done }) => done));
    await this.#interval.close();
  }

  /**
   * Returns the spec with its dependency layer, which is built if missing; the same object if the code
   * requests nothing. Code packages must be placed on this node before. Fails with `failed_precondition` and
   * the last lines of a build. Undone by `release`; a failure leaves nothing.
   */
  async place(spec: InstanceSpec, user: string): Promise<InstanceSpec> {
    const recipe = await this.#recipeOf(spec);
    if (recipe === null) return spec;
    this.#useLayer(user, recipe.key);
    try {
      await writeFile(join(this.#usesDir, user), recipe.key, { mode: 0o600 });
      const path = await this.#made(recipe, spec.runtime);
      return withLayer(spec, recipe.tool === 'npm' ? nodeLayer(path, spec) : pythonLayer(path, spec));
    } catch (error) {
      await this.release(user);
      throw error;
    }
  }

  /** Builds the layer and returns its id; null if the code requests nothing. Fails as `place` does. */
  async build(subject: CodeSubject): Promise<string | null> {
    const recipe = await this.#unplacedRecipe(subject);
    if (recipe === null) return null;
    this.#layers.protect(recipe.key);
    try {
      await this.#made(recipe, subject.runtime);
    } finally {
      this.#layers.release(recipe.key);
    }
    return recipe.key;
  }

  /**
   * Starts to build a missing layer; `records` has the build when this returns. null: the code requests
   * nothing. Fails with `failed_precondition` if the build cannot start.
   */
  async startBuild(subject: CodeSubject): Promise<string | null> {
    const recipe = await this.#unplacedRecipe(subject);
    if (recipe === null) return null;
    const { key, tenant, tool } = recipe;
    if (!this.#building.has(key)) {
      if (await this.#layers.has(key)) await this.records.ready({ id: key, tenant, tool, runtime: subject.runtime });
      // The record of the build contains its result.
      else void this.#begun(recipe, subject.runtime).catch(() => undefined);
    }
    await this.#building.get(key)?.isOnRecord;
    return key;
  }

  async release(user: string): Promise<void> {
    const key = this.#users.get(user);
    if (key === undefined) return;
    this.#users.delete(user);
    this.#layers.release(key);
    await rm(join(this.#usesDir, user), { force: true });
  }

  async collect(): Promise<void> {
    try {
      await this.#layers.collect();
      const beforeMs = Date.now() - this.#options.keepMs;
      await this.records.collect(beforeMs, async id => this.#building.has(id) || (await this.#layers.isKept(id)));
    } catch (error) {
      const reason = messageOf(error);
      this.#options.log.warn({ reason }, 'removal of unused dependencies failed; retrying');
    }
  }

  /** Removes npm layers of layout 1. A layer that a sandbox still uses stays, but is never mounted again. */
  async #removeOldLayouts(): Promise<void> {
    const { log } = this.#options;
    const kindOf = (path: string) => lstat(join(path, 'node_modules')).catch(() => null);
    const { removed, used } = await this.#layers.discard(async path => (await kindOf(path)) !== null);
    if (removed.length > 0) log.info({ layers: removed }, 'dependency layers of an older layout removed');
    for (const layer of used) {
      const users = [...this.#users].filter(([, key]) => key === layer).map(([user]) => user.split('.')[0]);
      if ((await kindOf(this.#layers.pathOf(layer)))?.isDirectory()) continue;
      const text = 'sandbox has a dependency layer whose node_modules is no directory: delete the instance';
      log.warn({ layer, instances: users }, text);
    }
  }

  #useLayer(user: string, key: string): void {
    const before = this.#users.get(user);
    if (before !== undefined) this.#layers.release(before);
    this.#users.set(user, key);
    this.#layers.protect(key);
  }

  async #made(recipe: Recipe, runtime: string): Promise<string> {
    if (!(await this.#layers.has(recipe.key))) await this.#begun(recipe, runtime);
    return this.#layers.pathOf(recipe.key);
  }

  /** Starts a build, or joins the running build of the same layer. */
  #begun(recipe: Recipe, runtime: string): Promise<void> {
    const { key, tenant } = recipe;
    const before = this.#building.get(key);
    if (before !== undefined) return before.done;
    this.#assertMayBuild(tenant);
    const isOnRecord = this.records.addBuild({ id: key, tenant, tool: recipe.tool, runtime });
    const done = this.#build(recipe, isOnRecord).finally(() => this.#building.delete(key));
    this.#building.set(key, { tenant, done, isOnRecord });
    return done;
  }

  async #build(recipe: Recipe, isOnRecord: Promise<void>): Promise<void> {
    const { key: id } = recipe;
    const unwritten = new Set<string>();
    // A failure to write the log must not fail the build.
    const lost = (error: unknown) => void unwritten.add(messageOf(error));
    this.#layers.protect(id);
    try {
      await isOnRecord;
      await this.#layers.get(recipe, text => this.records.say(id, text).catch(lost));
      await this.records.end(id, null).catch(lost);
    } catch (error) {
      const known = error instanceof ServiceError && error.code === 'failed_precondition';
      const reason = `the dependencies could not be installed: ${messageOf(error)}`;
      await this.records.end(id, known ? reason : 'the build was interrupted').catch(lost);
      throw known ? failedPrecondition(`${reason}\n(the whole log: build ${id})`) : error;
    } finally {
      this.#layers.release(id);
      const [reason] = unwritten;
      if (reason !== undefined) this.#options.log.warn({ build: id, reason }, 'build log is incomplete');
    }
  }

  #assertMayBuild(tenant: string): void {
    if (!this.#options.hasNetwork) {
      throw failedPrecondition(
        'the dependencies of the code are not installed yet, and nothing is installed here: the setting dependencies.network is none',
      );
    }
    const ofTenant = [...this.#building.values()].filter(build => build.tenant === tenant);
    if (ofTenant.length < MAX_BUILDS_OF_TENANT && this.#building.size < MAX_BUILDS) return;
    throw resourceExhausted('too many dependencies are being installed', { retryAfterSeconds: 10 });
  }

  /** Returns the recipe of code whose packages are named by their URLs; null as `#recipeOf` does. */
  async #unplacedRecipe(subject: CodeSubject): Promise<Recipe | null> {
    const { packages, others } = splitMounts(subject.mounts);
    if (packages.length === 0) return await this.#recipeOf(subject);
    const user = `look-${randomUUID()}`;
    const platformMounts: MountSpec[] = [...(subject.platformMounts ?? [])];
    try {
      for (const { source, target } of packages) {
        const sha256 = parseCodeUrl(source) ?? '';
        const path = await this.#options.packages.place(subject.tenant, sha256, user);
        platformMounts.push({ source: path, target, readonly: true });
      }
      return await this.#recipeOf({ ...subject, mounts: others, platformMounts });
    } finally {
      await this.#options.packages.release(user);
    }
  }

  /** Returns the recipe; null if nothing is to be installed. */
  async #recipeOf(subject: CodeSubject): Promise<Recipe | null> {
    const { runtime, sandboxType, dependencies } = subject;
    const tool = installerOf(runtime);
    if (dependencies !== 'auto' || tool === null) return null;
    const directory = await this.#openCode(subject);
    let manifest: Manifest | null;
    try {
      if (tool === 'pip') manifest = await readPythonManifest(directory);
      // A `node_modules` beside the code takes precedence over an installation.
      else manifest = (await hasEntry(directory, 'node_modules')) ? null : await readNodeManifest(directory);
    } finally {
      await directory.close();
    }
    if (manifest === null) return null;
    if (runsInCluster(sandboxType)) throw notInCluster(sandboxType);
    return tool === 'pip' ? await this.#pythonRecipe(subject, manifest) : await this.#nodeRecipe(subject, manifest);
  }

  async #pythonRecipe({ tenant, runtime }: CodeSubject, { files }: Manifest): Promise<Recipe> {
    const { environment, index, programs } = this.#options;
    const python = await askPython(await this.#options.python(runtime.slice('python'.length)));
    const [env, uv] = await Promise.all([pythonIndexEnvironment(python.path, environment, index), findUv(environment)]);
    const reads = 'pyproject.toml' in files;
    const program = reads ? await readFile(join(programs, 'requirements_of.py'), 'utf8') : '';
    return {
      key: keyOf(tenant, ['pip', python.path, python.version, env, index.pythonIndex, files]),
      tenant,
      tool: uv === null ? 'pip' : 'uv',
      target: VENV,
      files: { ...files, ...(reads && { 'requirements_of.py': program }) },
      mounts: [...python.mounts, ...(uv === null ? [] : [{ source: uv, target: UV, readonly: true }])],
      binDirs: [dirname(python.basePath)],
      env,
      argv: (layer, beside) => [
        ...['/bin/sh', '-c', VENV_SCRIPT, 'sh', python.basePath, layer, beside, '', 'no'],
        ...[uv === null ? '' : UV, 'requirements.txt'],
      ],
      errorLines: ERROR_LINES,
    };
  }

  async #nodeRecipe({ tenant, runtime }: CodeSubject, { files }: Manifest): Promise<Recipe> {
    const node = this.#options.node(runtime);
    const npm = await findNpm(node.path, this.#options.environment, this.#options.index);
    if (npm === null) {
      throw failedPrecondition(`npm is not installed on the machine of the service: put it beside ${node.path}`);
    }
    return {
      key: keyOf(tenant, ['npm', NPM_LAYOUT, node.version, npm.env, files]),
      tenant,
      tool: 'npm',
      target: NODE_LAYER,
      files,
      mounts: npm.mounts,
      binDirs: [dirname(node.path)],
      env: { ...npm.env, npm_config_cache: '/tmp/npm', npm_config_update_notifier: 'false' },
      argv: (layer, beside) => [...['/bin/sh', '-c', NPM_SCRIPT, 'sh', node.path, npm.cli, layer, beside]],
      errorLines: ERROR_LINES,
    };
  }

  /**
   * Opens the directory with the code. Fails with `failed_precondition` if no mount contains it or a link
   * leads out of that mount. Also fails as the rule for host paths does.
   */
  async #openCode({ codePath, mounts, platformMounts = [], sandboxType }: CodeSubject): Promise<OpenedPath> {
    const code = posix.normalize(codePath).replace(/(.)\/+$/, '$1');
    const ours = mountOf(platformMounts, code);
    const theirs = mountOf(mounts, code);
    const mount = (ours?.target.length ?? -1) >= (theirs?.target.length ?? 0) ? ours : theirs;
    if (mount === null) {
      throw failedPrecondition(
        `no mount brings ${codePath || 'a codePath'}, so there are no files that name dependencies`,
      );
    }
    const path = join(mount.source, code.slice(mount.target === '/' ? 0 : mount.target.length));
    // Host paths of sandboxes in the cluster are on other machines.
    if (mount !== ours && runsInCluster(sandboxType)) throw notInCluster(sandboxType);
    const opened =
      mount === ours ? await openPath(path) : await checkHostPath('code path', path, this.#options.policy, openPath);
    if (opened === null) throw failedPrecondition(`the code directory does not exist: ${codePath}`);
    // In the sandbox a link resolves within the mount. On the host it could lead to other files.
    const source = await findPath(mount.source);
    if (source !== null && isWithin(opened.resolved, source.resolved)) return opened;
    await opened.close();
    throw failedPrecondition(
      `the code path leads out of its mount through a link: ${codePath}; expected a directory below ${mount.target}`,
    );
  }
}

function notInCluster(sandboxType: string): ServiceError {
  return failedPrecondition(
    `dependencies are not installed for sandboxes of type ${sandboxType}: use an image that has them`,
  );
}

/** Name that no npm package can have. */
const NPM_WORK = '.rookery-build';
/**
 * The service mounts the layer, which it has made itself, and no path below it. Foreign code writes those
 * paths and may leave links there. Therefore the packages move up into the layer, inside the sandbox.
 */
const NPM_SCRIPT = `set -e
node=$1 npm=$2 layer=$3 files=$4
mkdir "$layer/${NPM_WORK}"
cp "$files"/* "$layer/${NPM_WORK}"
cd "$layer/${NPM_WORK}"
"$node" "$npm" ci --omit=dev --no-audit --no-fund
cd "$layer"
"$node" -e '
const fs = require("fs"), from = "${NPM_WORK}/node_modules";
let found = null;
try { found = fs.lstatSync(from); } catch (error) { if (error.code !== "ENOENT") throw error; }
if (found !== null && !found.isDirectory()) {
  const kind = found.isSymbolicLink() ? "a symbolic link" : "a file";
  console.error("node_modules is " + kind + " after the installation, expected a directory: a script of a package has replaced it");
  process.exit(1);
}
for (const name of found === null ? [] : fs.readdirSync(from)) fs.renameSync(from + "/" + name, name);
'
rm -rf "${NPM_WORK}"`;

/** Returns the mount that shows the path in the sandbox: the longest target, and among equals the last. */
function mountOf(mounts: readonly MountSpec[], path: string): MountSpec | null {
  const holds = (target: string) => path === target || target === '/' || path.startsWith(`${target}/`);
  let found: MountSpec | null = null;
  for (const mount of mounts) {
    const target = mount.target.replace(/(.)\/+$/, '$1');
    if (holds(target) && target.length >= (found?.target.length ?? 0)) found = { ...mount, target };
  }
  return found;
}

async function hasEntry(directory: OpenedPath, name: string): Promise<boolean> {
  const entry = await openEntry(directory, name);
  await entry?.close();
  return entry !== null;
}

function pythonLayer(path: string, { runtime }: CodeSubject) {
  const packages = `${VENV}/lib/${runtime}/site-packages`;
  return {
    mount: { source: path, target: VENV, readonly: true },
    binDir: `${VENV}/bin`,
    env: { VIRTUAL_ENV: VENV },
    pythonPath: packages,
  };
}

/** Returns the mount at the directory that Node.js searches after the directory of the code itself. */
function nodeLayer(path: string, { codePath }: CodeSubject) {
  const target = posix.join(posix.dirname(posix.normalize(codePath).replace(/(.)\/+$/, '$1')), 'node_modules');
  return {
    mount: { source: path, target, readonly: true },
    binDir: `${target}/.bin`,
    env: {},
  };
}

function keyOf(tenant: string, parts: readonly unknown[]): string {
  const all = JSON.stringify([tenant, platform(), arch(), ...parts]);
  return createHash('sha256').update(all).digest('hex').slice(0, 40);
}

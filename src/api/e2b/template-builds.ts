import type { AgentInstances } from '../../agents/contract.ts';
import type { CodePackages } from '../../code/code-packages.ts';
import type { SingleFiles } from '../../code/single-file.ts';
import type { ExecutorDefaults } from '../../core/agent.ts';
import { codeUrl } from '../../core/code-package.ts';
import type { TemplateStart, TemplateStep } from '../../core/e2b-templates.ts';
import { failedPrecondition, invalidRequest, messageOf, resourceExhausted } from '../../core/error.ts';
import type { InstanceSpec, MountSpec } from '../../core/instance.ts';
import { LIMITS } from '../../core/limits.ts';
import type { TemplateSpec } from '../../core/template.ts';
import { withDeadline } from '../../lib/deadline.ts';
import { Interval } from '../../lib/interval.ts';
import type { TemplateBuild, Templates } from '../../registry/templates.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { describeStep, runStep, type StepState, uploadTarget } from '../../templates/build-steps.ts';
import { startBuilt } from '../../templates/built.ts';
import { runCommand } from '../../templates/command.ts';
import { DEFAULT_TEMPLATE } from '../../templates/templates.ts';
import type { ImageCatalog } from '../images.ts';
import { storeSandboxFiles } from '../sandbox-files.ts';
import { type FoundTemplate, filesMount, resolveTemplate, sandboxSpec } from './specs.ts';
import { BUILD_LABEL, TemplateCleanup } from './template-cleanup.ts';

export interface TemplateBuildsOptions {
  readonly templates: Templates;
  readonly files: SingleFiles;
  readonly packages: Pick<CodePackages, 'find' | 'maxBytes'>;
  /** Returns the variables by which pip and npm find their indexes. */
  readonly indexEnvironment: () => Promise<Readonly<Record<string, string>>>;
  /** Bound of a build, milliseconds. */
  readonly timeoutMs: number;
}

export interface BuildSandboxes {
  readonly instances: Pick<AgentInstances, 'create' | 'delete' | 'access' | 'find' | 'liveSandboxes' | 'sandboxIds'>;
  readonly executors: ExecutorDefaults;
  readonly images: ImageCatalog;
}

/** An entry of the log of a build. */
export interface BuildLogEntry {
  readonly timestamp: string;
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  /** `base`, the number of a step from 1 on, or `finalize`. */
  readonly step: string;
}

interface Running {
  readonly entries: BuildLogEntry[];
  readonly over: AbortController;
  readonly done: Promise<void>;
  endedAtMs: number | null;
}

/** A build, prepared so far that its sandbox can start. */
interface Plan {
  readonly tenant: string;
  readonly build: TemplateBuild;
  readonly tags: readonly string[];
  readonly start: TemplateStart;
  /** Settings at the beginning. */
  readonly from: TemplateSpec;
  readonly sandbox: InstanceSpec;
}

/** A failure at a step, for the reason of the build. */
class StepFailed extends Error {
  readonly step: string;

  constructor(step: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.step = step;
  }
}

/** Images that mean the template `base`. */
const BASE_IMAGES = new Set(['', 'e2bdev/base', 'e2bdev/base:latest', 'e2bdev/code-interpreter:latest']);
const RUNNING_MS = 10_000;
/** Time for which the log of a finished build is kept. */
const KEEP_LOG_MS = 600_000;
const MAX_ENTRIES = 10_000;
const END_SECONDS_AFTER = 60;

/** Settings of a template from nothing. */
export const NEW_TEMPLATE: Omit<TemplateSpec, 'cpuMillis' | 'memoryMb'> = {
  ...{ base: DEFAULT_TEMPLATE, user: 'user', workingDir: '', env: {}, startCommand: '', readyCommand: '' },
};

/**
 * Runs builds of templates. The steps run in a sandbox. Its changed files become the files of the template; a
 * sandbox of an image becomes an image.
 */
export class TemplateBuilds {
  readonly #options: TemplateBuildsOptions & BuildSandboxes;
  readonly #running = new Map<string, Running>();
  readonly #interval = new Interval(RUNNING_MS, async () => this.#forget());
  readonly #cleanup: TemplateCleanup;

  constructor(options: TemplateBuildsOptions & BuildSandboxes) {
    this.#options = options;
    this.#cleanup = new TemplateCleanup({ ...options, isRunningHere: id => this.#running.has(id) });
  }

  async start(): Promise<void> {
    await this.#options.files.start();
    this.#interval.start();
    this.#cleanup.start();
  }

  /** Ends all builds and removes their sandboxes. */
  async close(): Promise<void> {
    for (const { over } of this.#running.values()) over.abort(failedPrecondition('the service ends'));
    await Promise.allSettled([...this.#running.values()].map(({ done }) => done));
    await this.#interval.close();
    await this.#cleanup.close();
  }

  /** Removes the images that no template and no sandbox needs. Call it after a change of tags. */
  removeUnused(): void {
    this.#cleanup.run();
  }

  /**
   * Starts a build that waits. Fails with `invalid_request` when it was started before or cannot begin as
   * requested, and with `resource_exhausted`.
   */
  async startBuild(tenant: string, build: TemplateBuild, tags: readonly string[], start: TemplateStart): Promise<void> {
    if (build.status !== 'waiting') throw invalidRequest(`the build ${build.id} was started before`);
    const open = [...this.#running.values()].filter(({ endedAtMs }) => endedAtMs === null);
    if (open.length >= LIMITS.templateBuilds.running) {
      throw resourceExhausted('too many templates are being built', { retryAfterSeconds: 10 });
    }
    const plan = { tenant, build, tags, start, ...(await this.#prepare(tenant, build, start)) };
    if (!(await this.#options.templates.running(tenant, build.id))) {
      throw invalidRequest(`the build ${build.id} was started before`);
    }
    const entries: BuildLogEntry[] = [];
    const over = new AbortController();
    const running: Running = { entries, over, endedAtMs: null, done: this.#run(plan, entries, over) };
    this.#running.set(build.id, running);
    void running.done.finally(() => {
      running.endedAtMs = performance.now();
    });
  }

  /** Returns the log of a build from `offset` on, as far as this service has it. */
  log(build: Pick<TemplateBuild, 'id'>, offset: number, limit: number): readonly BuildLogEntry[] {
    return this.#running.get(build.id)?.entries.slice(offset, offset + limit) ?? [];
  }

  /** Returns true if the service that ran the build has ended. */
  isLost(build: TemplateBuild): boolean {
    return this.#cleanup.isLost(build);
  }

  async #prepare(tenant: string, build: TemplateBuild, start: TemplateStart): Promise<Pick<Plan, 'from' | 'sandbox'>> {
    const { executors } = this.#options;
    const { cpuMillis, memoryMb } = build.spec;
    const template = await this.#origin(tenant, start);
    const built = template.kind === 'built' ? template.build : null;
    const before = template.kind === 'built' ? template.build.spec : { ...NEW_TEMPLATE, ...partsOf(template) };
    // The start command belongs to the template that names it.
    const from = { ...before, cpuMillis, memoryMb, startCommand: '', readyCommand: '' };
    const origin = { ...build, spec: from, sha256: built?.sha256 ?? '' };
    const spec = sandboxSpec(
      {
        template: { kind: 'built', build: origin },
        ...{ env: {}, labels: { [BUILD_LABEL]: build.id }, onExpiry: 'delete' },
        ttlSeconds: Math.ceil(this.#options.timeoutMs / 1000) + END_SECONDS_AFTER,
      },
      tenant,
      executors,
    );
    const mounts = [...filesMount(origin.sha256), ...(await this.#uploads(tenant, start.steps))];
    return { from, sandbox: { ...spec, mounts, callTimeoutMs: this.#options.timeoutMs } };
  }

  /** Returns what a build begins with. Fails with `invalid_request` or `not_found`. */
  async #origin(tenant: string, { fromImage, fromTemplate, fromImageRegistry }: TemplateStart): Promise<FoundTemplate> {
    const { templates, images } = this.#options;
    const name = fromImage.slice(0, MAX_IMAGE_CHARS);
    const pull = `docker pull ${name}`;
    if (fromImageRegistry !== undefined) {
      throw invalidRequest(
        `this service pulls no images: run ${pull} on its machine, and use from_image() without credentials`,
      );
    }
    if (BASE_IMAGES.has(fromImage)) {
      return await resolveTemplate({ templates, images }, tenant, fromTemplate || DEFAULT_TEMPLATE);
    }
    const state = await images.state(fromImage);
    if (state === 'present') return { kind: 'image', reference: fromImage };
    if (state === 'missing') {
      throw invalidRequest(`the image ${name} is not on the machine of the service; run there: ${pull}`);
    }
    throw invalidRequest(
      `the image ${name} needs a Docker daemon, and this service reaches none: install Docker on its machine and run ` +
        `${pull}, or begin with from_base_image()`,
    );
  }

  /** Returns the mounts of uploaded files. Fails with `invalid_request` if some were not uploaded. */
  async #uploads(tenant: string, steps: readonly TemplateStep[]): Promise<readonly MountSpec[]> {
    const hashes = new Set(steps.filter(({ type }) => type === 'COPY').map(({ filesHash }) => filesHash));
    const mounts: MountSpec[] = [];
    for (const hash of hashes) {
      const sha256 = await this.#options.templates.findFiles(tenant, hash);
      if (sha256 === null || (await this.#options.packages.find(tenant, sha256)) === null) {
        throw invalidRequest(`the files ${hash} of a COPY were not uploaded`);
      }
      mounts.push({ source: codeUrl(sha256), target: uploadTarget(hash), readonly: true });
    }
    return mounts;
  }

  /** Runs a build and records its end. Never rejects. */
  async #run(plan: Plan, entries: BuildLogEntry[], over: AbortController): Promise<void> {
    const { templates, timeoutMs } = this.#options;
    const { tenant, build, tags } = plan;
    const say = (step: string, message: string, level: BuildLogEntry['level'] = 'info') => {
      if (entries.length > MAX_ENTRIES) return;
      const isLast = entries.length === MAX_ENTRIES;
      const text = isLast ? 'further lines are left out' : message;
      entries.push({ timestamp: new Date().toISOString(), level: isLast ? 'warn' : level, message: text, step });
    };
    const alive = new Interval(RUNNING_MS, async () => {
      const isKnown = await templates.running(tenant, build.id).catch(() => true);
      if (!isKnown) over.abort(failedPrecondition('the template was deleted'));
    });
    alive.start();
    try {
      const late = () => failedPrecondition(`the build took longer than ${timeoutMs / 1000} s`);
      const made = await withDeadline(timeoutMs, signal => this.#make(plan, say, signal), over.signal, late);
      await alive.close();
      await templates.end(tenant, build.id, { status: 'ready', ...made, tags });
    } catch (error) {
      await alive.close();
      const step = error instanceof StepFailed ? error.step : 'base';
      const reason = messageOf(error);
      say(step, reason, 'error');
      await templates.end(tenant, build.id, { status: 'error', reason, step }).catch(() => undefined);
    }
    this.removeUnused();
  }

  async #make(
    plan: Plan,
    say: (step: string, message: string, level?: BuildLogEntry['level']) => void,
    signal: AbortSignal,
  ): Promise<{ readonly sha256: string; readonly spec: TemplateSpec }> {
    const { instances, indexEnvironment } = this.#options;
    const { tenant, start, from, sandbox } = plan;
    const isOnHost = from.image === undefined;
    const isOfImage = !BASE_IMAGES.has(start.fromImage);
    say(
      'base',
      `begins with the ${isOfImage ? `image ${start.fromImage}` : `template ${start.fromTemplate || DEFAULT_TEMPLATE}`}`,
    );
    const { id } = await instances.create({ spec: sandbox });
    try {
      const access = await instances.access(tenant, id);
      const index = Object.entries(await indexEnvironment()).filter(([, value]) => isOnHost || !value.startsWith('/'));
      const buildEnv = { ...Object.fromEntries(index), PIP_NO_CACHE_DIR: '1', PIP_ROOT_USER_ACTION: 'ignore' };
      const sandboxEnv = await variablesOf(access, signal);
      let state: StepState = from;
      for (const [index, step] of start.steps.entries()) {
        const number = String(index + 1);
        say(number, `[${number}/${start.steps.length}] ${describeStep(step)}`);
        const line = (text: string, kind: string) => say(number, text, kind === 'stderr' ? 'warn' : 'info');
        const context = { access, signal, isOnHost, sandboxEnv, buildEnv, line };
        state = await at(number, `step ${number} (${describeStep(step)}) failed`, runStep(step, state, context));
      }
      const { user, workingDir, env } = state;
      const { startCmd: startCommand, readyCmd: readyCommand } = start;
      say('finalize', 'storing the files');
      const { sha256, ...stored } = await at('finalize', 'the files were not stored', this.#store(plan, id, signal));
      const spec = { ...from, ...stored, user, workingDir, env, startCommand, readyCommand };
      if (startCommand !== '' || readyCommand !== '') {
        say('finalize', 'waiting until the template is ready');
        await at('finalize', 'the template does not get ready', startBuilt(access, spec, env, signal));
      }
      say('finalize', 'the template is built');
      return { sha256, spec };
    } finally {
      await instances.delete(tenant, id, 0).catch(() => undefined);
      this.removeUnused();
    }
  }

  /** Stores the present files of the sandbox of a build: as an image if it has one, else as a package. */
  async #store(
    { tenant, build, from }: Plan,
    id: string,
    signal: AbortSignal,
  ): Promise<{ readonly sha256: string; readonly image?: string }> {
    const { instances, images } = this.#options;
    if (from.image === undefined) {
      const access = await instances.access(tenant, id);
      return { sha256: await storeSandboxFiles(this.#options, tenant, access, signal) };
    }
    signal.throwIfAborted();
    const image = await (await images.ofDriver()).commit(id, { tenant, build: build.id });
    signal.throwIfAborted();
    return { sha256: '', image };
  }

  #forget(): void {
    for (const [id, { endedAtMs }] of this.#running) {
      if (endedAtMs !== null && endedAtMs < performance.now() - KEEP_LOG_MS) this.#running.delete(id);
    }
  }
}

/** Returns the parts of a new template that its origin decides. */
function partsOf(template: Exclude<FoundTemplate, { readonly kind: 'built' }>): Pick<TemplateSpec, 'base' | 'image'> {
  return template.kind === 'service' ? { base: template.name } : { base: '', image: template.reference };
}

const MAX_IMAGE_CHARS = 200;

/** Names the step of a failure. */
async function at<T>(step: string, what: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new StepFailed(step, `${what}: ${messageOf(error)}`, { cause: error });
  }
}

/** Returns the variables of the sandbox, to which values of ENV may refer. */
async function variablesOf(access: SandboxAccess, signal: AbortSignal): Promise<Readonly<Record<string, string>>> {
  const said: Buffer[] = [];
  const command = { script: 'cat /proc/self/environ', user: '', workingDir: '', env: {} };
  await runCommand(access, command, signal, (kind, data) => void (kind === 'stdout' && said.push(data)));
  const pairs = Buffer.concat(said)
    .toString()
    .split('\0')
    .filter(pair => pair !== '');
  return Object.fromEntries(pairs.map(pair => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]));
}

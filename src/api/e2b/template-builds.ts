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
import { filesMount, notOnHost, resolveTemplate, sandboxSpec } from './specs.ts';

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
  readonly instances: Pick<AgentInstances, 'create' | 'delete' | 'access'>;
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
/** Age of the last report of a build after which its service has ended. */
const LOST_MS = 60_000;
/** Time for which the log of a finished build is kept. */
const KEEP_LOG_MS = 600_000;
const MAX_ENTRIES = 10_000;
const END_SECONDS_AFTER = 60;

/** Settings of a template from nothing. */
export const NEW_TEMPLATE: Omit<TemplateSpec, 'cpuMillis' | 'memoryMb'> = {
  ...{ base: DEFAULT_TEMPLATE, user: 'user', workingDir: '', env: {}, startCommand: '', readyCommand: '' },
};

/**
 * Runs builds of templates: the steps run in a sandbox, whose changed files become the files of the template.
 */
export class TemplateBuilds {
  readonly #options: TemplateBuildsOptions & BuildSandboxes;
  readonly #running = new Map<string, Running>();
  readonly #interval = new Interval(RUNNING_MS, async () => this.#forget());

  constructor(options: TemplateBuildsOptions & BuildSandboxes) {
    this.#options = options;
  }

  async start(): Promise<void> {
    await this.#options.files.start();
    this.#interval.start();
  }

  /** Ends all builds and removes their sandboxes. */
  async close(): Promise<void> {
    for (const { over } of this.#running.values()) over.abort(failedPrecondition('the service ends'));
    await Promise.allSettled([...this.#running.values()].map(({ done }) => done));
    await this.#interval.close();
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
  isLost({ id, status, updatedAtMs }: TemplateBuild): boolean {
    return status === 'building' && !this.#running.has(id) && updatedAtMs < Date.now() - LOST_MS;
  }

  async #prepare(tenant: string, build: TemplateBuild, start: TemplateStart): Promise<Pick<Plan, 'from' | 'sandbox'>> {
    const { templates, executors, images } = this.#options;
    const { cpuMillis, memoryMb } = build.spec;
    if (!BASE_IMAGES.has(start.fromImage) || start.fromImageRegistry !== undefined) {
      throw invalidRequest(
        `the image ${start.fromImage.slice(0, 200)} cannot be a template: sandboxes of this service show the ` +
          `programs of its host; begin with from_base_image() or from_template()`,
      );
    }
    const template = await resolveTemplate({ templates, images }, tenant, start.fromTemplate || DEFAULT_TEMPLATE);
    if (template.kind === 'image') throw notOnHost();
    const built = template.kind === 'built' ? template.build : null;
    const before = built?.spec ?? { ...NEW_TEMPLATE, base: template.kind === 'service' ? template.name : '' };
    // The start command belongs to the template that names it.
    const from = { ...before, cpuMillis, memoryMb, startCommand: '', readyCommand: '' };
    const origin = { ...build, spec: from, sha256: built?.sha256 ?? '' };
    const spec = sandboxSpec(
      {
        template: { kind: 'built', build: origin },
        ...{ env: {}, labels: { template_build: build.id }, onExpiry: 'delete' },
        ttlSeconds: Math.ceil(this.#options.timeoutMs / 1000) + END_SECONDS_AFTER,
      },
      tenant,
      executors,
    );
    if (spec.rootfs.type !== 'host') throw notOnHost();
    const mounts = [...filesMount(origin.sha256), ...(await this.#uploads(tenant, start.steps))];
    return { from, sandbox: { ...spec, mounts, callTimeoutMs: this.#options.timeoutMs } };
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
  }

  async #make(
    plan: Plan,
    say: (step: string, message: string, level?: BuildLogEntry['level']) => void,
    signal: AbortSignal,
  ): Promise<{ readonly sha256: string; readonly spec: TemplateSpec }> {
    const { instances, indexEnvironment } = this.#options;
    const { tenant, start, from, sandbox } = plan;
    say('base', `begins with the template ${start.fromTemplate || DEFAULT_TEMPLATE}`);
    const { id } = await instances.create({ spec: sandbox });
    try {
      const access = await instances.access(tenant, id);
      const buildEnv = { ...(await indexEnvironment()), PIP_NO_CACHE_DIR: '1', PIP_ROOT_USER_ACTION: 'ignore' };
      const sandboxEnv = await variablesOf(access, signal);
      let state: StepState = from;
      for (const [index, step] of start.steps.entries()) {
        const number = String(index + 1);
        say(number, `[${number}/${start.steps.length}] ${describeStep(step)}`);
        const line = (text: string, kind: string) => say(number, text, kind === 'stderr' ? 'warn' : 'info');
        const context = { access, signal, sandboxEnv, buildEnv, line };
        state = await at(number, `step ${number} (${describeStep(step)}) failed`, runStep(step, state, context));
      }
      const { user, workingDir, env } = state;
      const { startCmd: startCommand, readyCmd: readyCommand } = start;
      const spec = { ...from, user, workingDir, env, startCommand, readyCommand };
      say('finalize', 'storing the files');
      const sha256 = await at(
        'finalize',
        'the files were not stored',
        storeSandboxFiles(this.#options, tenant, access, signal),
      );
      if (startCommand !== '' || readyCommand !== '') {
        say('finalize', 'waiting until the template is ready');
        await at('finalize', 'the template does not get ready', startBuilt(access, spec, env, signal));
      }
      say('finalize', 'the template is built');
      return { sha256, spec };
    } finally {
      await instances.delete(tenant, id, 0).catch(() => undefined);
    }
  }

  #forget(): void {
    for (const [id, { endedAtMs }] of this.#running) {
      if (endedAtMs !== null && endedAtMs < performance.now() - KEEP_LOG_MS) this.#running.delete(id);
    }
  }
}

/** Names the step of a failure. */
async function at<T>(step: string, what: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new StepFailed(step, `${what}: ${messageOf(error)}`, { cause: error });
  }
}

const PRINT_VARIABLES = 'for n in HOME PATH PYTHONUSERBASE USER; do printf "%s\\0" "$n=$(printenv $n)"; done';

/** Returns the variables of the sandbox that values of ENV commonly refer to. */
async function variablesOf(access: SandboxAccess, signal: AbortSignal): Promise<Readonly<Record<string, string>>> {
  const said: Buffer[] = [];
  const command = { script: PRINT_VARIABLES, user: '', workingDir: '', env: {} };
  await runCommand(access, command, signal, (kind, data) => void (kind === 'stdout' && said.push(data)));
  const pairs = Buffer.concat(said)
    .toString()
    .split('\0')
    .filter(pair => pair !== '');
  return Object.fromEntries(pairs.map(pair => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]));
}

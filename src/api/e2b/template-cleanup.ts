import type { AgentInstances } from '../../agents/contract.ts';
import { Interval } from '../../lib/interval.ts';
import type { TemplateBuild, TemplateOutcome, Templates } from '../../registry/templates.ts';
import type { ImageCatalog } from '../images.ts';

export interface TemplateCleanupOptions {
  readonly instances: Pick<AgentInstances, 'delete' | 'find' | 'liveSandboxes' | 'sandboxIds'>;
  readonly images: Pick<ImageCatalog, 'ofDriver'>;
  readonly templates: Pick<Templates, 'openBuilds' | 'end'>;
  /** Returns true for a build that this process has started. */
  readonly isRunningHere: (id: string) => boolean;
}

const INTERVAL_MS = 30_000;
/** Age of the last report of a build after which its service has ended. */
const LOST_MS = 60_000;
/** The outcome of a build whose service has ended. */
export const INTERRUPTED: TemplateOutcome & { readonly status: 'error' } = {
  status: 'error',
  reason: 'the build was interrupted: the service was restarted',
  step: 'base',
};

/**
 * Removes the images of templates that nothing uses, and the sandboxes of builds whose service has ended.
 * Both may also be residue of a service that was killed.
 */
export class TemplateCleanup {
  readonly #options: TemplateCleanupOptions;
  readonly #interval = new Interval(INTERVAL_MS, async () => {
    if (this.#isPending) await this.#passes();
  });
  #running: Promise<void> | null = null;
  #isRequested = false;
  /** True if a later pass may find something to remove. */
  #isPending = true;

  constructor(options: TemplateCleanupOptions) {
    this.#options = options;
  }

  start(): void {
    this.#interval.start();
    this.run();
  }

  /** Begins a pass. A request during a pass is served by one more pass. */
  run(): void {
    void this.#passes();
  }

  async close(): Promise<void> {
    await this.#interval.close();
    await this.#running;
  }

  /** Returns true if the service that ran the build has ended. */
  isLost({ id, status, updatedAtMs }: TemplateBuild): boolean {
    const { isRunningHere } = this.#options;
    return status === 'building' && !isRunningHere(id) && updatedAtMs < Date.now() - LOST_MS;
  }

  #passes(): Promise<void> {
    this.#isRequested = true;
    this.#running ??= this.#repeat().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #repeat(): Promise<void> {
    while (this.#isRequested && !this.#interval.isClosed) {
      this.#isRequested = false;
      // The daemon or the database may answer later.
      this.#isPending = await this.#pass().catch(() => true);
    }
  }

  /** Returns true if a later pass may find something to remove. */
  async #pass(): Promise<boolean> {
    const { images, templates, isRunningHere } = this.#options;
    const store = await images.ofDriver().catch(() => null);
    // The list is older than the builds: the build of each image in it then has begun.
    const listed = store === null ? [] : await store.committed().catch(() => null);
    const committed = listed ?? [];
    const builds = await templates.openBuilds(committed.map(({ build }) => build));
    const abandoned = builds.filter(({ id, status }) => status === 'building' && !isRunningHere(id));
    const ended = await this.#endAbandoned(abandoned);
    const needed = new Set(builds.filter(build => !ended.has(build.id) && needsImage(build)).map(({ id }) => id));
    const unused = committed.filter(({ build }) => !needed.has(build));
    const used = unused.length === 0 ? new Set() : await this.#imagesOfSandboxes();
    for (const { id, name } of unused) if (!used.has(name)) await store?.remove(id);
    return listed === null || committed.length > 0 || abandoned.length > 0;
  }

  /**
   * Removes the sandboxes of builds that this process did not start, and ends their records. Returns the ids
   * of the ended builds. A build without a sandbox on this node may run on another one until it is lost.
   */
  async #endAbandoned(builds: readonly TemplateBuild[]): Promise<ReadonlySet<string>> {
    const { instances, templates } = this.#options;
    const ended = new Set<string>();
    if (builds.length === 0) return ended;
    const live = await Promise.all(instances.liveSandboxes().map(({ id }) => instances.find(id)));
    for (const build of builds) {
      const sandbox = live.find(each => each?.spec.tenant === build.tenant && each.labels[BUILD_LABEL] === build.id);
      if (!sandbox && !this.isLost(build)) continue;
      // A sandbox that is being deleted already also counts. Each one ends with its time to live otherwise.
      if (sandbox) await instances.delete(build.tenant, sandbox.id, 0).catch(() => undefined);
      await templates.end(build.tenant, build.id, INTERRUPTED);
      ended.add(build.id);
    }
    return ended;
  }

  async #imagesOfSandboxes(): Promise<ReadonlySet<string>> {
    const { instances } = this.#options;
    const found = await Promise.all((await instances.sandboxIds()).map(id => instances.find(id)));
    return new Set(found.flatMap(each => (each === null ? [] : [each.spec.rootfs.imageUrl])));
  }
}

/** Label of the sandbox in which a build runs, with the id of the build. */
export const BUILD_LABEL = 'template_build';

function needsImage({ status, tags }: TemplateBuild): boolean {
  return status === 'building' || (status === 'ready' && Object.keys(tags).length > 0);
}

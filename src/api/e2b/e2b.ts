import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import type { ExecutorDefaults } from '../../core/agent.ts';
import type { TokenVerifier } from '../../http/access/credentials.ts';
import { Envd } from '../envd/envd.ts';
import type { ImageCatalog } from '../images.ts';
import type { Passage } from '../passthrough/passage.ts';
import { addControlRoutes } from './control.ts';
import { addForkRoute } from './forks.ts';
import { addInsideRoutes } from './inside.ts';
import { addKeyRoutes, type KeyStore } from './key-routes.ts';
import { SandboxMetrics } from './metrics.ts';
import { E2bSandboxes } from './sandboxes.ts';
import { addSnapshotRoutes } from './snapshots.ts';
import { TemplateBuilds, type TemplateBuildsOptions } from './template-builds.ts';
import { addAliasRoute, addTemplateRoutes } from './templates.ts';

export interface E2bOptions {
  readonly instances: AgentInstances;
  readonly executors: ExecutorDefaults;
  /** Keys of tenants. */
  readonly keys: KeyStore;
  readonly images: ImageCatalog;
  /** Templates that tenants build. Absent: there are those of the service only. */
  readonly templates?: TemplateBuildsOptions;
  /** Domain of host names of sandboxes, with or without a port; null: sandboxes have no host names. */
  readonly domain: string | null;
  /** Verifies tokens of the service. null: authentication is off. */
  readonly auth: TokenVerifier | null;
  /** The key that signs links to public URLs. */
  readonly key: Buffer;
}

/** The templates of tenants, where no tenant builds any. */
export const NO_TEMPLATES = { find: async () => null, builds: async () => [] };

/** Adds everything that clients of the E2B protocol use. */
export function addE2bRoutes(app: FastifyInstance, passage: Passage, options: E2bOptions): void {
  const { instances, executors, images, auth, domain, key } = options;
  const built = options.templates;
  const templates = built?.templates ?? NO_TEMPLATES;
  const sandboxes = new E2bSandboxes(instances, key);
  const metrics = new SandboxMetrics({ instances });
  app.addHook('onListen', async () => metrics.start());
  const envd = new Envd();
  // Streams and polled watchers would otherwise hold up the close.
  app.addHook('preClose', async () => envd.close());
  app.addHook('onClose', async () => await metrics.close());
  const builds = built && new TemplateBuilds({ ...built, instances, executors, images });
  app.addHook('onReady', async () => await builds?.start());
  app.addHook('preClose', async () => await builds?.close());
  addKeyRoutes(app, options.keys);
  const keys = auth === null ? null : options.keys;
  app.register(async scope => {
    const control = { instances, executors, sandboxes, templates, images, metrics, keys, facts: { domain } };
    addControlRoutes(scope, control, (add, change, find) => {
      addAliasRoute(add, templates);
      if (!built || !builds) return;
      addTemplateRoutes(scope, add, { ...built, builds, key });
      addSnapshotRoutes(add, change, { ...built, instances, find });
      addForkRoute(add, change, { ...built, instances, sandboxes, facts: { domain }, find });
    });
  });
  app.register(async scope => addInsideRoutes(scope, passage, { instances, sandboxes, metrics, envd, auth }));
}

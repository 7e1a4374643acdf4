import { createFrontend } from '../src/api/frontend-app.ts';
import { createMeta } from '../src/api/meta-app.ts';
import { VERSION } from '../src/version.ts';

/**
 * Returns the OpenAPI document of an entry, as `GET /openapi.json` of a running service answers it.
 * The document depends on the routes only. The services behind the routes are stand-ins, which are never
 * called.
 */
export async function openApiDocument(entry: 'frontend' | 'meta'): Promise<string> {
  const parts = {
    version: VERSION,
    hosts: { boundHost: '127.0.0.1', allowedHosts: [] },
    auth: null,
    log: SHADOW,
    metrics: SHADOW,
    ready: () => ({}),
    slowMs: 1000,
  };
  const app =
    entry === 'frontend'
      ? createFrontend({
          ...parts,
          tracer: SHADOW,
          addresses: { domain: { domain: 'localhost', scheme: 'http' }, key: Buffer.alloc(0) },
          e2b: {
            ...{ keys: SHADOW, domain: null },
            templates: { templates: SHADOW, packages: SHADOW, files: SHADOW, indexEnvironment: SHADOW, timeoutMs: 1 },
          },
          invoked: SHADOW,
          callSink: SHADOW,
          history: SHADOW,
          instances: SHADOW,
          images: SHADOW,
          functions: SHADOW,
          executors: { defaultSandboxType: 'process' },
          mountPolicy: SHADOW,
          findPath: SHADOW,
          service: SHADOW,
          lambda: { registry: SHADOW, code: SHADOW, canChange: true, keys: SHADOW },
          jobs: SHADOW,
          code: SHADOW,
          builds: SHADOW,
          secrets: SHADOW,
          cluster: SHADOW,
          observed: SHADOW,
        })
      : createMeta({ ...parts, registry: SHADOW, poolTenants: null });
  try {
    await app.ready();
    return `${JSON.stringify(app.swagger(), null, 2)}\n`;
  } finally {
    await app.close();
  }
}

/** Stand-in for any part. It is only passed on, never used. */
// biome-ignore lint/suspicious/noExplicitAny: it stands in for every part, and is none of them
const SHADOW: any = new Proxy(() => SHADOW, {
  get: (_target, name) => (name === 'then' || typeof name === 'symbol' ? undefined : SHADOW),
});

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { AgentExpose, CreateAgentRequest } from './generated.ts';

export type Environment = NonNullable<CreateAgentRequest['env_vars']>;

/** Options common to agents and functions, named as in `rookery.yaml` (docs/start/deploy.md). */
export interface RunOptions {
  /**
   * Directory to pack and upload, without the paths that its `.rookeryignore` excludes. Or the name of an
   * uploaded package: `code://<sha256>`.
   */
  readonly code?: string;
  /** Runtime that loads the code; default: `nodejs`. */
  readonly runtime?: string;
  /** Handler, `module.function`. Default: `index.handle` for Node.js, otherwise `handler.handle`. */
  readonly handler?: string;
  /**
   * Contract that a server of runtime `http` follows (docs/guides/http-profiles.md). With it, `runtime` is
   * `http` by default.
   */
  readonly httpProfile?: 'http' | 'functions-framework' | 'agentcore' | 'sagemaker' | 'cloud-run';
  /** Function that runs once before the first call, `module.function`. */
  readonly initializer?: string;
  /** Function that runs before the instance stops, `module.function`. */
  readonly preStop?: string;
  /**
   * `auto` installs the packages that files beside the code list, such as `package.json` or
   * `requirements.txt`. Default: `auto` if `code` is a directory with such a file.
   */
  readonly dependencies?: 'auto' | 'none';
  readonly env?: Environment;
  /** CPU in thousandths of a core; default: 1000. */
  readonly cpu?: number;
  /** Memory in MB; default: 2048. */
  readonly memory?: number;
  /** Type of the sandbox. Absent: the default of the service. */
  readonly sandbox?: 'docker' | 'supervisor' | 'kubernetes';
  /** Container image. Default: `host`, the files of the service's machine. */
  readonly image?: string;
  readonly user?: string;
  /** Ports to publish, such as `tcp:8080`. */
  readonly ports?: string[];
  readonly expose?: AgentExpose;
}

/** Returns the fields that requests for agents and for functions have in common. */
export function runFields(options: RunOptions) {
  const { code, httpProfile } = options;
  const { runtime = httpProfile === undefined ? 'nodejs' : 'http' } = options;
  const isNode = runtime.startsWith('nodejs');
  const { handler = isNode ? 'index.handle' : 'handler.handle' } = options;
  const { dependencies = code !== undefined && asksForDependencies(code, isNode) ? 'auto' : undefined } = options;
  return {
    runtime,
    // The runtime `http` has no handler: the program serves HTTP.
    ...(runtime === 'http' && options.handler === undefined ? {} : { handler }),
    ...(httpProfile === undefined ? {} : { httpProfile }),
    ...(dependencies === undefined ? {} : { dependencies }),
    cpu: options.cpu ?? 1000,
    memory: options.memory ?? 2048,
    extendedHandler: {
      ...(options.initializer === undefined ? {} : { initializer: options.initializer }),
      ...(options.preStop === undefined ? {} : { pre_stop: options.preStop }),
    },
    rootfs: {
      imageurl: options.image ?? 'host',
      ...(options.user === undefined ? {} : { user: options.user }),
      ...(options.ports === undefined ? {} : { ports: options.ports }),
    },
  };
}

function asksForDependencies(code: string, isNode: boolean): boolean {
  const names = isNode ? ['package.json'] : ['requirements.txt', 'pyproject.toml', 'uv.lock', 'poetry.lock'];
  return names.some(name => existsSync(join(resolve(code), name)));
}

/**
 * Returns whether a record has the values of all fields, also those inside of objects. Ignores
 * `dependencies`, which records lack: they belong to the code.
 */
export function hasFields(record: object, fields: object): boolean {
  const found = new Map<string, unknown>(Object.entries(record));
  return Object.entries(fields).every(([name, value]: [string, unknown]) => {
    const kept = found.get(name);
    const isNested = typeof value === 'object' && value !== null && !Array.isArray(value) && name !== 'inputSchema';
    if (isNested) return typeof kept === 'object' && kept !== null && hasFields(kept, value);
    return name === 'dependencies' || isDeepStrictEqual(kept, value);
  });
}

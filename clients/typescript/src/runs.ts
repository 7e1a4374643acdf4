import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { AgentExpose, CreateAgentRequest } from './generated.ts';

export type Environment = NonNullable<CreateAgentRequest['env_vars']>;

/** What an agent and a function have in common, with the names of `rookery.yaml` (docs/deploy.md). */
export interface RunOptions {
  /** A directory. It is packed and uploaded; `.rookeryignore` leaves things out. Or a package that is there: `code://<sha256>`. */
  readonly code?: string;
  /** `nodejs` unless it is said. */
  readonly runtime?: string;
  /** `module.function`; `index.handle` for Node.js, else `handler.handle`. */
  readonly handler?: string;
  readonly initializer?: string;
  readonly preStop?: string;
  /** `auto`: what the files beside the code ask for is installed. That is so when they are there. */
  readonly dependencies?: 'auto' | 'none';
  readonly env?: Environment;
  /** Thousandths of a core; 1000. */
  readonly cpu?: number;
  /** MB; 2048. */
  readonly memory?: number;
  /** The type of the sandbox; absent: the default of the service. */
  readonly sandbox?: 'docker' | 'supervisor' | 'kubernetes';
  /** `host`: the files of the service's machine. */
  readonly image?: string;
  readonly user?: string;
  /** Published ports: `tcp:8080`. */
  readonly ports?: string[];
  readonly expose?: AgentExpose;
}

/** The fields that follow from options alone, whichever way they are sent. */
export function runFields(options: RunOptions) {
  const { runtime = 'nodejs', code } = options;
  const isNode = runtime.startsWith('nodejs');
  const { handler = isNode ? 'index.handle' : 'handler.handle' } = options;
  const { dependencies = code !== undefined && asksForDependencies(code, isNode) ? 'auto' : undefined } = options;
  return {
    runtime,
    // A server of HTTP has none.
    ...(runtime === 'http' && options.handler === undefined ? {} : { handler }),
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

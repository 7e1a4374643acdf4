import { isDeepStrictEqual } from 'node:util';
import { ENVIRONMENTS, MASK } from '../../core/environment.ts';
import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { readPool } from '../../core/pool.ts';
import { secretsOf } from '../../core/secret.ts';
import { callMeta, metaPath } from '../function/meta-call.ts';
import { secretsOfService } from '../secret/secret.ts';
import type { Client } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import { refuseProblems } from '../shared/input.ts';
import type { DeployedAgent, DeployedPool, Deployment } from './file.ts';

export type Action = 'create' | 'update' | 'replace' | 'unchanged';

/** The work for one resource of the file. */
export interface Step {
  readonly kind: 'pool' | 'function' | 'agent' | 'job';
  readonly name: string;
  readonly action: Action;
  /** The fields that will change, for people. */
  readonly changes: readonly string[];
  /** Fields whose difference is unknown, because the service masks their values for this caller. */
  readonly hidden?: readonly string[];
  /** True if the resource stays unchanged but is FAILED. The deploy then ends with 1. */
  readonly isFailed?: boolean;
  /** Runs before `apply`, and shows its own progress. */
  prepare?(): Promise<void>;
  /** Applies the step. Returns a text for the person: the address or name of the resource. */
  apply(): Promise<string>;
}

/** The fields that decide about the dependencies of an agent or a function. */
export type DeployedCode = Pick<DeployedAgent, 'code' | 'runtime' | 'sandbox' | 'dependencies'>;

/** Services that the plans of all kinds of resources need. */
export interface Planning {
  readonly client: Client;
  readonly deployment: Deployment;
  /** True if one-off jobs that failed run again. */
  readonly rerunsFailed: boolean;
  /** Returns the URL for the code of a directory. Uploads the code only if the plan will be applied. */
  codeUrl(directory: string): Promise<string>;
  /** Returns true if the code declares dependencies. */
  asks(code: DeployedCode): boolean;
  /** Installs the dependencies of the code. */
  install(code: DeployedCode, url: string): Promise<void>;
  /** Returns the URI for the directory of a job. Uploads it only if the plan will be applied. */
  jobDirectory(directory: string): Promise<string>;
}

/**
 * Returns the fields of `wanted` that differ in `found`, and the fields that may differ because their values
 * are masked.
 */
export function differences(
  wanted: Readonly<Record<string, unknown>>,
  found: Readonly<Record<string, unknown>>,
): { readonly changes: readonly string[]; readonly hidden: readonly string[] } {
  const names = Object.keys(wanted);
  const that = (what: Comparison) =>
    names.filter(name => compare(wanted[name] ?? null, found[name] ?? null, ENVIRONMENTS.has(name)) === what);
  return { changes: that('different'), hidden: that('hidden') };
}

type Comparison = 'same' | 'hidden' | 'different';

function compare(wanted: unknown, found: unknown, isEnvironment: boolean): Comparison {
  if (isEnvironment && found === MASK && typeof wanted === 'string' && wanted !== '') return 'hidden';
  if (!isJsonObject(wanted) || !isJsonObject(found)) return isDeepStrictEqual(wanted, found) ? 'same' : 'different';
  // A member without a value is like an absent one.
  const each = Object.keys({ ...wanted, ...found }).map(name =>
    compare(wanted[name], found[name], isEnvironment || ENVIRONMENTS.has(name)),
  );
  return each.find(what => what === 'different') ?? each.find(what => what === 'hidden') ?? 'same';
}

export async function nothing(): Promise<string> {
  return '';
}

/** Returns the sentence about secrets that the file needs and the service lacks, or null. */
export async function missingSecrets(client: Client, deployment: Deployment): Promise<string | null> {
  const { secrets, agents, functions, jobs } = deployment;
  const used = [agents, functions, jobs].flatMap(all => Object.values(all).flatMap(({ env }) => secretsOf(env)));
  const wanted = [...new Set([...secrets, ...used])];
  if (wanted.length === 0) return null;
  const there = new Set((await secretsOfService(client)).map(({ name }) => name));
  const missing = wanted.filter(name => !there.has(name));
  if (missing.length === 0) return null;
  const which = missing.length === 1 ? 'The secret' : 'The secrets';
  return `${which} ${missing.join(', ')} must be there first: rookery secret set ${missing[0]}`;
}

const CHANGEABLE = ['size', 'max_size'];

export async function planPool({ client, deployment }: Planning, id: string, pool: DeployedPool): Promise<Step> {
  const { group, size, maxSize, resources, image, labels, env } = pool;
  const body = {
    ...{ id, group, size, max_size: maxSize, resources, image },
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
    ...(Object.keys(env).length === 0 ? {} : { environment: env }),
  };
  const read = readPool(body);
  if (!read.ok) refuseProblems(`${deployment.file}: pools.${id}`, read.problems);
  const { result } = await callMeta(client, 'GET', metaPath('/podpools', { id, offset: '1', limit: '1' }));
  const [found] = (result as { readonly pools: readonly JsonObject[] }).pools;
  const step = { kind: 'pool', name: id } as const;
  if (found === undefined) {
    return {
      ...step,
      action: 'create',
      changes: [],
      async apply() {
        await callMeta(client, 'POST', '/podpools', { pools: [body] });
        return '';
      },
    };
  }
  const wanted = Object.fromEntries(
    Object.keys(body).map(field => [field, read.value[field as keyof typeof read.value]]),
  );
  const { changes, hidden } = differences(wanted, found);
  const differing = [...changes, ...hidden];
  if (differing.length === 0) return { ...step, action: 'unchanged', changes, apply: nothing };
  return {
    ...step,
    action: 'update',
    changes,
    hidden,
    async apply() {
      const fixed = differing.filter(field => !CHANGEABLE.includes(field));
      if (fixed.length > 0) {
        throw new CliError(`its ${fixed.join(' and ')} cannot change: delete it first (rookery pool delete ${id})`);
      }
      const sent = { size: read.value.size, max_size: read.value.max_size };
      await callMeta(client, 'PUT', `/podpools/${encodeURIComponent(id)}`, sent);
      return '';
    },
  };
}

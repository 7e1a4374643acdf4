import { isDeepStrictEqual } from 'node:util';
import { ENVIRONMENTS, MASK } from '../../core/environment.ts';
import { isJsonObject } from '../../core/json.ts';
import type { Client } from '../shared/client.ts';
import type { DeployedAgent, Deployment } from './file.ts';

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
  if (isDeepStrictEqual(wanted, found)) return 'same';
  if (isEnvironment && found === MASK && typeof wanted === 'string' && wanted !== '') return 'hidden';
  if (!isJsonObject(wanted) || !isJsonObject(found)) return 'different';
  const each = Object.keys({ ...wanted, ...found }).map(name =>
    compare(wanted[name], found[name], isEnvironment || ENVIRONMENTS.has(name)),
  );
  return each.includes('hidden') && !each.includes('different') ? 'hidden' : 'different';
}

export async function nothing(): Promise<string> {
  return '';
}

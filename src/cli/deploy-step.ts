import { isDeepStrictEqual } from 'node:util';
import { isJsonObject } from '../core/json.ts';
import { ENVIRONMENTS, MASK } from '../core/mask.ts';
import type { Client } from './client.ts';
import type { DeployedAgent, Deployment } from './deploy-file.ts';

export type Action = 'create' | 'update' | 'replace' | 'unchanged';

/** What has to be done for one thing of the file. */
export interface Step {
  readonly kind: 'pool' | 'function' | 'agent' | 'job';
  readonly name: string;
  readonly action: Action;
  /** The fields that are to change, for people. */
  readonly changes: readonly string[];
  /** Those of which that is not known: the service does not show the caller their values. */
  readonly hidden?: readonly string[];
  /** Comes before it, and shows by itself what it does. */
  prepare?(): Promise<void>;
  /** Does it; answers what a person should know of it then: where it is, how it is called. */
  apply(): Promise<string>;
}

/** What decides about the dependencies of an agent or a function. */
export type DeployedCode = Pick<DeployedAgent, 'code' | 'runtime' | 'sandbox' | 'dependencies'>;

/** What the plans of all kinds of things need. */
export interface Planning {
  readonly client: Client;
  readonly deployment: Deployment;
  /** What the code of a directory is named by; it is uploaded when the plan is to be done. */
  codeUrl(directory: string): Promise<string>;
  /** Whether the code asks for something that is installed for it. */
  asks(code: DeployedCode): boolean;
  /** Installs that. */
  install(code: DeployedCode, url: string): Promise<void>;
  /** The same for the directory of a job. */
  jobDirectory(directory: string): Promise<string>;
}

/** The names of the fields of `wanted` in which `found` differs, and of those in which it may: their values are masked. */
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

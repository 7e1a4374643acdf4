import { isDeepStrictEqual } from 'node:util';
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

/** The names of the fields of `wanted` in which `found` differs. */
export function changedFields(
  wanted: Readonly<Record<string, unknown>>,
  found: Readonly<Record<string, unknown>>,
): readonly string[] {
  return Object.keys(wanted).filter(name => !isDeepStrictEqual(wanted[name] ?? null, found[name] ?? null));
}

export async function nothing(): Promise<string> {
  return '';
}

import type { SandboxFacts } from '../core/instance.ts';
import type { StartedSandbox } from '../sandbox/driver.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';

/** Columns about a sandbox that has started. */
export type StartedFacts = Pick<StoredInstance, 'statusReason' | 'loadError' | 'startedAtMs' | 'sandbox'>;

/** Returns the columns. `loadError`: why the code was not loaded; `''` if it was. */
export function factsOf({ facts }: StartedSandbox, loadError: string, startedAtMs: number): StartedFacts {
  return { statusReason: '', loadError, startedAtMs, sandbox: facts };
}

/** Returns the columns of a sandbox that has started. */
export function rowOf(facts: { readonly sandbox: SandboxFacts } & object, { handle }: StartedSandbox, secret: string) {
  return { ...facts, handle: JSON.stringify(handle), secret };
}

import type { ServiceError } from '../core/error.ts';
import type { ErrorAnswer } from './answer.ts';
import type { Identity } from './credentials.ts';

/** Why a request may not pass. */
export interface Refusal extends ErrorAnswer {
  /** For the access log. */
  readonly reason: ServiceError | string;
}

/** Whom a request speaks for. */
export type Admitted = Identity & { readonly tenant: string };

/** Whom the request speaks for, or why it may not pass. */
export type Verdict = Admitted | Refusal;

export function isRefusal(verdict: Verdict): verdict is Refusal {
  return (verdict as Refusal).status !== undefined;
}

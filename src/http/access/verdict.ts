import type { ServiceError } from '../../core/error.ts';
import type { ErrorAnswer } from '../answer.ts';
import type { Identity } from './credentials.ts';

/** A refused request: the answer and the reason. */
export interface Refusal extends ErrorAnswer {
  /** The reason for the access log. */
  readonly reason: ServiceError | string;
}

/** The tenant, role and expiry of an admitted request. */
export type Admitted = Identity & { readonly tenant: string };

/** The result of the gate. */
export type Verdict = Admitted | Refusal;

export function isRefusal(verdict: Verdict): verdict is Refusal {
  return (verdict as Refusal).status !== undefined;
}

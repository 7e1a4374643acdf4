import { parseUrn } from '../core/urn.ts';
import { functionNotFound } from './errors.ts';

/** Function as named by a client. */
export interface NamedFunction {
  /** Plain name, unchecked: pass the result of `knownName` to the registry. */
  readonly name: string;
  /** Normalized version of a URN that has one; otherwise null. */
  readonly version: string | null;
  /**
   * URN of a function that this client cannot use: another tenant or business, or not a valid URN. Otherwise
   * null.
   */
  readonly foreignUrn: string | null;
}

/** Reads a function's name from a path or body: `0@<service>@<name>`, or a URN with or without a version. */
export function readFunctionName(text: string, tenant: string, business: string): NamedFunction {
  if (!text.startsWith('sn:')) return { name: text, version: null, foreignUrn: null };
  const urn = parseUrn(text);
  if (urn === null) return { name: text, version: null, foreignUrn: text };
  const isOurs = urn.tenant === tenant && urn.business === business;
  return { name: urn.name, version: urn.version, foreignUrn: isOurs ? null : text };
}

/**
 * Returns the name for the registry. Call it after checking the rest of the request: another tenant's
 * function then answers like an unknown one, even to wrong requests. Fails with `not_found` (4115) for a URN
 * that this client cannot use.
 */
export function knownName({ name, foreignUrn }: NamedFunction): string {
  if (foreignUrn !== null) throw functionNotFound(foreignUrn);
  return name;
}

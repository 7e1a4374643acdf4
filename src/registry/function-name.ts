import { parseUrn } from '../core/urn.ts';
import { functionNotFound } from './errors.ts';

/** What a caller called a function. */
export interface NamedFunction {
  readonly name: string;
  /** Of a URN that has one, normalized; else null. */
  readonly version: string | null;
}

/**
 * Reads a function's name as paths and bodies carry it: `0@<service>@<name>`, or a URN with or without its version.
 * A URN of another tenant or business fails with `not_found` (4115), as an unknown function does.
 */
export function readFunctionName(text: string, tenant: string, business: string): NamedFunction {
  if (!text.startsWith('sn:')) return { name: text, version: null };
  const urn = parseUrn(text);
  if (urn === null || urn.tenant !== tenant || urn.business !== business) throw functionNotFound(text);
  return { name: urn.name, version: urn.version };
}

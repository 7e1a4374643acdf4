import { parseUrn } from '../core/urn.ts';
import { functionNotFound } from './errors.ts';

/** The name by which a caller names a function. */
export interface NamedFunction {
  /** The plain name. Who asks the registry for it takes `knownName`. */
  readonly name: string;
  /** Of a URN that has one, normalized; else null. */
  readonly version: string | null;
  /** The URN of a function that this caller cannot have: of another tenant or business, or no URN after all. */
  readonly foreignUrn: string | null;
}

/** Reads a function's name as paths and bodies carry it: `0@<service>@<name>`, or a URN with or without its version. */
export function readFunctionName(text: string, tenant: string, business: string): NamedFunction {
  if (!text.startsWith('sn:')) return { name: text, version: null, foreignUrn: null };
  const urn = parseUrn(text);
  if (urn === null) return { name: text, version: null, foreignUrn: text };
  const isOurs = urn.tenant === tenant && urn.business === business;
  return { name: urn.name, version: urn.version, foreignUrn: isOurs ? null : text };
}

/**
 * The name to ask the registry for, once the request is right in itself: so a function of another tenant answers as an unknown one to
 * wrong requests too. Fails with `not_found` (4115) for a URN that this caller cannot have.
 */
export function knownName({ name, foreignUrn }: NamedFunction): string {
  if (foreignUrn !== null) throw functionNotFound(foreignUrn);
  return name;
}

import { isLoopback } from '../../config/contradictions.ts';
import { ACCESSES, type Access } from '../../core/address.ts';
import type { Client } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import { oneOf } from '../shared/print.ts';

/** The member `expose` of a record. */
export interface Exposed {
  readonly port: number;
  readonly access: Access;
  readonly address: string | null;
  readonly path: string;
}

/**
 * Returns the address that works from this machine. Names below localhost lead to this machine, but the
 * service may run on another.
 */
export function addressFor({ addresses }: Pick<Client, 'addresses'>, { address, path }: Exposed): string {
  const isHere = isLoopback(addresses.frontend.hostname.replace(/^\[|\]$/g, ''));
  const isLocal = address !== null && /^http:\/\/[^/]+\.localhost(:|\/)/.test(address);
  return address === null || (isLocal && !isHere) ? new URL(path, addresses.frontend).href : address;
}

/** Parses `8000` or `8000:public`. */
export function parseExpose(text: string): { readonly port: number; readonly access?: Access } {
  const [, port = '', access] = /^(\d{1,5})(?::(\w+))?$/.exec(text) ?? [];
  const known = ACCESSES.find(each => each === access);
  if (port === '' || (access !== undefined && known === undefined)) {
    throw usageError(`--expose must be a port, or port:access with ${oneOf(ACCESSES)}, not ${JSON.stringify(text)}.`);
  }
  return { port: Number(port), ...(known && { access: known }) };
}

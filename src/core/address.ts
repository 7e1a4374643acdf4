import { integer, oneOf } from './kind.ts';
import { object, optional, required } from './shape.ts';
import { DEFAULT_TENANT } from './tenant.ts';

/**
 * Clients that may reach an exposed port.
 * - `token`: clients with a token of the port's tenant.
 * - `link`: clients with such a token or with a signed link.
 * - `public`: all clients that can reach the service.
 */
export type Access = 'token' | 'link' | 'public';

/** A port with an address of its own. */
export interface Expose {
  /** TCP port on 127.0.0.1 inside the sandbox. */
  readonly port: number;
  readonly access: Access;
}

export const ACCESSES = ['token', 'link', 'public'] as const satisfies readonly Access[];

/** The field `expose` of a create and of a function. */
export const EXPOSE = object<Expose>({
  port: required(integer({ min: 1, max: 65_535 }), 'A TCP port on 127.0.0.1 inside the sandbox.'),
  access: optional<Access>(
    oneOf(ACCESSES),
    'token',
    'Who may come: `token`, `link` (a token or a signed link), `public`.',
  ),
});

/**
 * The field `expose` of a function. An update can change the field but not omit it; port 0 removes the
 * address.
 */
export const EXPOSE_FUNCTION = object<Expose>({
  ...EXPOSE.fields,
  port: required(integer({ min: 0, max: 65_535 }), 'A TCP port on 127.0.0.1 inside; 0: none has an address.'),
});

/** The resource that an address names. For a function, `namespace` is its service. */
export interface AddressName {
  readonly tenant: string;
  readonly namespace: string;
  readonly name: string;
}

/** Longest label that DNS allows. */
const MAX_LABEL_CHARS = 63;
const SEPARATOR = '--';
const PART = /^[a-z0-9]+(-[a-z0-9]+)*$/;
const PART_RULE = 'lower-case letters, digits and single "-" in between';

/**
 * Returns the reason why a resource cannot have an address, or null. The text completes a sentence. The
 * tenant's name is not checked, because the caller does not choose it.
 */
export function addressProblem({ name, namespace }: Pick<AddressName, 'name' | 'namespace'>): string | null {
  for (const [what, part] of Object.entries({ name, namespace })) {
    if (!PART.test(part)) return `its ${what} must have ${PART_RULE}, got ${JSON.stringify(part.slice(0, 80))}`;
  }
  // Browsers read a label that begins with "xn--" as a name in another script.
  if (name === 'xn') return 'its name must not be "xn"';
  const label = `${name}${SEPARATOR}${namespace}`;
  if (label.length <= MAX_LABEL_CHARS) return null;
  return `"${label}" must have at most ${MAX_LABEL_CHARS} characters, and has ${label.length}`;
}

/**
 * Returns the DNS label of an address: `<name>--<namespace>`, plus `--<tenant>` for tenants other than
 * `default`. Names appear unchanged, so each resource has a label of its own. Null: a name does not fit into
 * a label.
 */
export function addressLabel(it: AddressName): string | null {
  const { tenant, namespace, name } = it;
  if (addressProblem(it) !== null) return null;
  if (tenant === DEFAULT_TENANT) return `${name}${SEPARATOR}${namespace}`;
  const label = [name, namespace, tenant].join(SEPARATOR);
  return PART.test(tenant) && label.length <= MAX_LABEL_CHARS ? label : null;
}

/** Returns the resource that a label names, or null for a text that is not a label. */
export function parseAddressLabel(label: string): AddressName | null {
  const [name = '', namespace, tenant = DEFAULT_TENANT, ...rest] = label.split(SEPARATOR);
  if (namespace === undefined || rest.length > 0) return null;
  const found = { tenant, namespace, name };
  // A label that spells out the tenant `default` is refused, so that each resource has one label.
  return addressLabel(found) === label ? found : null;
}

/** Returns the path of an address at the service's own host name. The path ends with a slash. */
export function addressPath({ tenant, namespace, name }: AddressName): string {
  const parts = namespace === DEFAULT_NAMESPACE ? [name] : [name, namespace];
  return `/${tenant}/${parts.join(SEPARATOR)}/`;
}

/** Returns the resource that the path segment after the tenant names, or null. */
export function parseAddressPath(tenant: string, segment: string): AddressName | null {
  const [name = '', namespace = DEFAULT_NAMESPACE, ...rest] = segment.split(SEPARATOR);
  if (rest.length > 0) return null;
  const found = { tenant, namespace, name };
  return addressProblem(found) === null && addressPath(found) === `/${tenant}/${segment}/` ? found : null;
}

const DEFAULT_NAMESPACE = 'default';

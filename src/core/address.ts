import { integer, oneOf } from './kind.ts';
import { object, optional, required } from './shape.ts';
import { DEFAULT_TENANT } from './tenant.ts';

/**
 * Who may come to an exposed port: `token`, who has a token of its tenant; `link`, whoever has such a token or a signed link;
 * `public`, everybody who reaches the service.
 */
export type Access = 'token' | 'link' | 'public';

/** A port that has an address of its own. */
export interface Expose {
  /** TCP, on 127.0.0.1 inside the sandbox. */
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

/** Of a function, whose field an update may change and not leave out: port 0 takes the address away. */
export const EXPOSE_FUNCTION = object<Expose>({
  ...EXPOSE.fields,
  port: required(integer({ min: 0, max: 65_535 }), 'A TCP port on 127.0.0.1 inside; 0: none has an address.'),
});

/** What an address leads to. Of a function `namespace` is its service. */
export interface AddressName {
  readonly tenant: string;
  readonly namespace: string;
  readonly name: string;
}

/** A label of DNS has no more. */
const MAX_LABEL_CHARS = 63;
const SEPARATOR = '--';
const PART = /^[a-z0-9]+(-[a-z0-9]+)*$/;
const PART_RULE = 'lower-case letters, digits and single "-" in between';

/** Why something cannot have an address, the end of a sentence; null: it can. What its tenant is called is not the caller's choice. */
export function addressProblem({ name, namespace }: Pick<AddressName, 'name' | 'namespace'>): string | null {
  for (const [what, part] of Object.entries({ name, namespace })) {
    if (!PART.test(part)) return `its ${what} must have ${PART_RULE}, got ${JSON.stringify(part.slice(0, 80))}`;
  }
  // Browsers take what begins with it for a name in another script.
  if (name === 'xn') return 'its name must not be "xn"';
  const label = `${name}${SEPARATOR}${namespace}`;
  if (label.length <= MAX_LABEL_CHARS) return null;
  return `"${label}" must have at most ${MAX_LABEL_CHARS} characters, and has ${label.length}`;
}

/**
 * The label of an address under a host name: `<name>--<namespace>`, with `--<tenant>` behind it for tenants other than `default`. Names stand
 * in it as they are, so no two things have the same label. Null: what it is called cannot stand in one.
 */
export function addressLabel(it: AddressName): string | null {
  const { tenant, namespace, name } = it;
  if (addressProblem(it) !== null) return null;
  if (tenant === DEFAULT_TENANT) return `${name}${SEPARATOR}${namespace}`;
  const label = [name, namespace, tenant].join(SEPARATOR);
  return PART.test(tenant) && label.length <= MAX_LABEL_CHARS ? label : null;
}

/** What a label names; null for a text that is none. */
export function parseAddressLabel(label: string): AddressName | null {
  const [name = '', namespace, tenant = DEFAULT_TENANT, ...rest] = label.split(SEPARATOR);
  if (namespace === undefined || rest.length > 0) return null;
  const found = { tenant, namespace, name };
  // The tenant `default` is left out: each thing has one label.
  return addressLabel(found) === label ? found : null;
}

/** The path of an address at the service's own host name; it ends with a slash. */
export function addressPath({ tenant, namespace, name }: AddressName): string {
  const parts = namespace === DEFAULT_NAMESPACE ? [name] : [name, namespace];
  return `/${tenant}/${parts.join(SEPARATOR)}/`;
}

/** What the segment behind the tenant names; null for what is none. */
export function parseAddressPath(tenant: string, segment: string): AddressName | null {
  const [name = '', namespace = DEFAULT_NAMESPACE, ...rest] = segment.split(SEPARATOR);
  if (rest.length > 0) return null;
  const found = { tenant, namespace, name };
  return addressProblem(found) === null && addressPath(found) === `/${tenant}/${segment}/` ? found : null;
}

const DEFAULT_NAMESPACE = 'default';

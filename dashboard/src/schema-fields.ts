/** Fields of a form for the event of a function, made from its JSON Schema. */

type Scalar = string | number | boolean | null;

/** A field for one member of the event. */
export interface SchemaField {
  readonly name: string;
  readonly kind: 'string' | 'integer' | 'number' | 'choice';
  /** Values of a choice. */
  readonly choices: readonly Scalar[];
  readonly isRequired: boolean;
  /** Text for people: what the member must be, and its description. */
  readonly hint: string;
  /** Text that the field has at first. */
  readonly first: string;
}

/** Text of a choice that leaves the member out. */
export const ABSENT = 'not sent';

/** Returns the fields of a schema, or null when a member is neither scalar nor an enumeration. */
export function fieldsOf(schema: unknown): readonly SchemaField[] | null {
  if (!isObject(schema) || !isObject(schema.properties) || (schema.type ?? 'object') !== 'object') return null;
  const required = Array.isArray(schema.required) ? schema.required : [];
  const fields = Object.entries(schema.properties).map(([name, member]) =>
    fieldOf(name, member, { root: schema, isRequired: required.includes(name) }),
  );
  return fields.length > 0 && fields.every(field => field !== null) ? fields : null;
}

interface Place {
  readonly root: Readonly<Record<string, unknown>>;
  readonly isRequired: boolean;
}

function fieldOf(name: string, member: unknown, { root, isRequired }: Place): SchemaField | null {
  const schema = simplified(member, root);
  if (schema === null) return null;
  const { type, enum: values, default: preset, description } = schema;
  const given = type === 'boolean' ? [true, false] : values;
  const choices: readonly unknown[] = Array.isArray(given) ? given : [];
  const kind = given === undefined ? type : choices.length > 0 && choices.every(isScalar) ? 'choice' : undefined;
  if (kind !== 'choice' && kind !== 'string' && kind !== 'integer' && kind !== 'number') return null;
  const word = kind === 'choice' ? (type === 'boolean' ? 'boolean' : 'one of these') : kind;
  const about = typeof description === 'string' ? `: ${description}` : '';
  const first = isScalar(preset) && preset !== null ? String(preset) : '';
  return {
    name,
    kind,
    choices: choices.filter(isScalar),
    isRequired,
    hint: `${word}${isRequired ? '' : ', optional'}${about}`,
    first: kind !== 'choice' || first !== '' ? first : isRequired ? String(choices[0]) : ABSENT,
  };
}

/** Follows a reference, and takes the one member of `anyOf` and the one type that are not null. */
function simplified(member: unknown, root: Place['root']): Readonly<Record<string, unknown>> | null {
  if (!isObject(member)) return null;
  const { $ref, anyOf, ...rest } = member;
  if (typeof $ref === 'string') {
    const part = isObject(root.$defs) ? root.$defs[$ref.replace(/^#\/\$defs\//, '')] : undefined;
    return isObject(part) && part.$ref === undefined && part.anyOf === undefined ? { ...part, ...rest } : null;
  }
  if (Array.isArray(anyOf)) {
    const [one, ...others] = anyOf.filter(each => !isObject(each) || each.type !== 'null');
    return isObject(one) && one.anyOf === undefined && others.length === 0
      ? simplified({ ...one, ...rest }, root)
      : null;
  }
  if (!Array.isArray(rest.type)) return rest;
  const [type, ...others] = rest.type.filter(each => each !== 'null');
  return others.length === 0 ? { ...rest, type } : null;
}

/** Returns the texts of the fields for a body: its members, else the first texts. */
export function textsOf(fields: readonly SchemaField[], body: string): Readonly<Record<string, string>> {
  const event = parsed(body);
  return Object.fromEntries(
    fields.map(({ name, first }) => {
      const value = Object.hasOwn(event, name) ? event[name] : undefined;
      return [name, value === undefined ? first : typeof value === 'string' ? value : JSON.stringify(value)];
    }),
  );
}

/**
 * Returns the body with the members that the texts give. Members without a field stay. A text that is no
 * number is sent as text, so that the service reports it.
 */
export function bodyOf(fields: readonly SchemaField[], texts: Readonly<Record<string, string>>, body: string): string {
  const event = Object.fromEntries(
    Object.entries(parsed(body)).filter(([name]) => fields.every(field => field.name !== name)),
  );
  for (const field of fields) {
    const value = memberOf(field, texts[field.name] ?? '');
    if (value !== undefined) event[field.name] = value;
  }
  return JSON.stringify(event, null, 2);
}

function memberOf({ kind, choices }: SchemaField, text: string): Scalar | undefined {
  if (kind === 'choice') return choices.find(choice => String(choice) === text);
  if (text === '' || kind === 'string') return text === '' ? undefined : text;
  const value = Number(text);
  return Number.isFinite(value) ? value : text;
}

function parsed(body: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(body);
    return isObject(value) ? { ...value } : {};
  } catch {
    return {};
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isScalar(value: unknown): value is Scalar {
  return value === null || ['string', 'number', 'boolean'].includes(typeof value);
}

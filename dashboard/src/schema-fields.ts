/** Fields of a form for the event of a function, made from its JSON Schema. */

type Scalar = string | number | boolean | null;
type JsonObject = Readonly<Record<string, unknown>>;

/** Rule by which the text of a field becomes a value. */
interface ValueRule {
  readonly kind: 'string' | 'integer' | 'number' | 'choice';
  /** Values of a choice. */
  readonly choices: readonly Scalar[];
}

interface MemberPlace {
  readonly name: string;
  /** Identifies the member in its form; a valid id of an element. */
  readonly key: string;
  /** The path with which the service reports faults: `event.address.street`. */
  readonly path: string;
  readonly isRequired: boolean;
}

/** A field for one member of the event, or of an object in the event. */
export interface SchemaField extends MemberPlace {
  /** `list`: one scalar per line. `json`: any value as JSON. */
  readonly kind: ValueRule['kind'] | 'list' | 'json';
  readonly choices: readonly Scalar[];
  /** The rule of the items of a list. */
  readonly item?: ValueRule;
  /** Text for people: what the member must be, and its description. */
  readonly hint: string;
  /** Text that the field has at first. */
  readonly first: string;
}

/** A group of fields for an object. Its text is `SENT` or `ABSENT`. */
export interface SchemaGroup extends MemberPlace {
  readonly kind: 'group';
  readonly members: readonly SchemaPart[];
  readonly hint: string;
  readonly first: string;
  /** Members that the fields show while the body lacks the object. */
  readonly preset: JsonObject;
}

export type SchemaPart = SchemaField | SchemaGroup;
type Texts = Readonly<Record<string, string>>;

/** Text of a choice or group that leaves the member out. */
export const ABSENT = 'not sent';
/** Text of a group that is part of the body. */
export const SENT = 'sent';
/** Depth to which objects become groups. Deeper objects are JSON texts. */
const MAX_DEPTH = 4;
/** Largest number of fields and groups of a form. More would slow the page down and are hard to read. */
const MAX_PARTS = 200;

/** Returns the parts of the form, or null when the schema is not an object with a field other than JSON. */
export function fieldsOf(schema: unknown): readonly SchemaPart[] | null {
  if (!isObject(schema) || !isObject(schema.properties) || (schema.type ?? 'object') !== 'object') return null;
  const form = { root: schema, count: 0 };
  const parts = membersOf(schema, { key: 'event', path: 'event', within: [] }, form);
  const isUseful = withMembers(parts).some(({ kind }) => kind !== 'json' && kind !== 'group');
  return isUseful && form.count <= MAX_PARTS ? parts : null;
}

interface Form {
  readonly root: JsonObject;
  /** Number of parts so far. */
  count: number;
}

interface Above {
  readonly key: string;
  readonly path: string;
  /** The `properties` of the objects that contain the member, outermost first. */
  readonly within: readonly unknown[];
}

function membersOf(schema: JsonObject, above: Above, form: Form): readonly SchemaPart[] {
  const { properties, required } = schema;
  const needed: readonly unknown[] = Array.isArray(required) ? required : [];
  const within = [...above.within, properties];
  const parts: SchemaPart[] = [];
  for (const [name, member] of Object.entries(isObject(properties) ? properties : {})) {
    // `false` forbids the member.
    if (member === false) continue;
    form.count += 1;
    if (form.count > MAX_PARTS) break;
    const place = {
      name,
      key: `${above.key}-${parts.length}`,
      path: `${above.path}.${name}`,
      isRequired: needed.includes(name),
    };
    parts.push(partOf(member, place, within, form));
  }
  return parts;
}

function partOf(member: unknown, place: MemberPlace, within: readonly unknown[], form: Form): SchemaPart {
  const schema = simplified(member, form.root) ?? {};
  const { properties, default: preset } = schema;
  const hintOf = (word: string) => {
    const { description } = isObject(member) && schema.description === undefined ? member : schema;
    const kind = [word, place.isRequired ? '' : 'optional'].filter(text => text !== '').join(', ');
    return [kind, typeof description === 'string' ? description : ''].filter(text => text !== '').join(': ');
  };
  const hasMembers = isObject(properties) && Object.keys(properties).length > 0;
  const isGroup = hasMembers && (schema.type ?? 'object') === 'object' && schema.enum === undefined;
  // The members of a schema that refers to itself are JSON texts from the second level on.
  if (isGroup && within.length <= MAX_DEPTH && !within.includes(properties)) {
    return {
      ...place,
      kind: 'group',
      members: membersOf(schema, { ...place, within }, form),
      hint: hintOf(''),
      first: place.isRequired || isObject(preset) ? SENT : ABSENT,
      preset: isObject(preset) ? preset : {},
    };
  }
  const rule = ruleOf(schema);
  if (rule !== null) {
    const first = isScalar(preset) && preset !== null ? String(preset) : '';
    const word = rule.kind !== 'choice' ? rule.kind : schema.type === 'boolean' ? 'boolean' : 'one of these';
    const chosen = first !== '' ? first : place.isRequired ? String(rule.choices[0]) : ABSENT;
    return { ...place, ...rule, hint: hintOf(word), first: rule.kind === 'choice' ? chosen : first };
  }
  const items =
    schema.type === 'array' && schema.prefixItems === undefined ? simplified(schema.items, form.root) : null;
  const item = items === null ? null : ruleOf(items);
  const shown = (field: Omit<SchemaField, 'first'>) => ({
    ...field,
    first: preset === undefined || preset === null ? '' : textOf({ ...field, first: '' }, preset),
  });
  if (item === null) return shown({ ...place, kind: 'json', choices: [], hint: hintOf('JSON') });
  const among = item.kind === 'choice' ? ` of ${item.choices.map(String).join(', ')}` : `: ${item.kind}`;
  return shown({ ...place, kind: 'list', choices: [], item, hint: hintOf(`one per line${among}`) });
}

/** Returns how a text becomes a scalar that fits the schema; null: the schema is of no scalar. */
function ruleOf({ type, enum: values }: JsonObject): ValueRule | null {
  const given = type === 'boolean' ? [true, false] : values;
  if (given !== undefined) {
    const choices: readonly unknown[] = Array.isArray(given) ? given : [];
    return choices.length > 0 && choices.every(isScalar) ? { kind: 'choice', choices: choices.filter(isScalar) } : null;
  }
  return type === 'string' || type === 'integer' || type === 'number' ? { kind: type, choices: [] } : null;
}

/** Follows a reference, and takes the one member of `anyOf` and the one type that are not null. */
function simplified(member: unknown, root: JsonObject): JsonObject | null {
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

/** Returns the texts of the parts by their keys: the members of the body, else the first texts. */
export function textsOf(parts: readonly SchemaPart[], body: string): Texts {
  return Object.fromEntries(textEntries(parts, parsed(body)));
}

function textEntries(parts: readonly SchemaPart[], object: JsonObject): readonly (readonly [string, string])[] {
  return parts.flatMap(part => {
    const value = Object.hasOwn(object, part.name) ? object[part.name] : undefined;
    if (part.kind !== 'group') return [[part.key, value === undefined ? part.first : textOf(part, value)] as const];
    const isSent = part.isRequired || isObject(value);
    const text = isSent ? SENT : value === undefined ? part.first : ABSENT;
    const shown = isObject(value) ? value : value === undefined ? part.preset : {};
    return [[part.key, text] as const, ...textEntries(part.members, shown)];
  });
}

function textOf(field: SchemaField, value: unknown): string {
  const { kind } = field;
  if (kind === 'json') return JSON.stringify(value, null, 2);
  if (value === null && kind !== 'choice') return '';
  if (kind === 'list' && Array.isArray(value)) {
    const lines = value.map(item => (typeof item === 'string' ? item : JSON.stringify(item))).join('\n');
    // Lines cannot show every list, such as one with an empty string.
    const isSame = JSON.stringify(valueFrom(field, lines)) === JSON.stringify(value);
    return isSame ? lines : JSON.stringify(value);
  }
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/**
 * Returns the body with the members that the texts give. Members without a field stay. A text that is no
 * number or no JSON is sent as text, so that the service reports it.
 */
export function bodyOf(parts: readonly SchemaPart[], texts: Texts, body: string): string {
  return JSON.stringify(objectOf(parts, texts, parsed(body)), null, 2);
}

function objectOf(parts: readonly SchemaPart[], texts: Texts, old: JsonObject): JsonObject {
  const names = new Set(parts.map(({ name }) => name));
  const entries = Object.entries(old).filter(([name]) => !names.has(name));
  for (const part of parts) {
    const text = texts[part.key] ?? '';
    const value = part.kind === 'group' ? groupOf(part, texts, old) : valueFrom(part, text);
    if (value !== undefined) entries.push([part.name, value]);
  }
  return Object.fromEntries(entries);
}

function groupOf({ key, name, members }: SchemaGroup, texts: Texts, old: JsonObject): JsonObject | undefined {
  if (texts[key] !== SENT) return undefined;
  const before = Object.hasOwn(old, name) ? old[name] : undefined;
  return objectOf(members, texts, isObject(before) ? before : {});
}

function valueFrom(field: SchemaField, text: string): unknown {
  const { kind, item, isRequired } = field;
  if (kind === 'list' && item !== undefined) {
    const whole = text.startsWith('[') ? parsedJson(text) : undefined;
    if (Array.isArray(whole)) return whole;
    const lines = linesOf(text);
    return lines.length > 0 || isRequired ? lines.map(line => orText(scalarOf(item, line), line)) : undefined;
  }
  if (kind !== 'json') return kind === 'list' ? undefined : scalarOf({ ...field, kind }, text);
  return text === '' ? undefined : orText(parsedJson(text), text);
}

function orText(value: unknown, text: string): unknown {
  return value === undefined ? text : value;
}

function scalarOf({ kind, choices }: ValueRule, text: string): Scalar | undefined {
  if (kind === 'choice') return choices.find(choice => String(choice) === text);
  if (text === '' || kind === 'string') return text === '' ? undefined : text;
  const value = Number(text);
  return Number.isFinite(value) ? value : text;
}

function linesOf(text: string): readonly string[] {
  return text.split('\n').filter(line => line !== '');
}

/** Returns what the text of a field alone shows to be wrong, with the path of the fault; `''`: nothing. */
export function faultOf({ kind, item, path }: SchemaField, text: string): string {
  if (text === '') return '';
  if (kind === 'json') return parsedJson(text) === undefined ? `${path}: must be JSON` : '';
  if (kind !== 'list' || item === undefined) return faultOfScalar(kind, path, text);
  if (text.startsWith('[') && Array.isArray(parsedJson(text))) return '';
  const faults = linesOf(text).map((line, index) => {
    const isUnknown = item.kind === 'choice' && scalarOf(item, line) === undefined;
    const among = item.choices.map(String).join(', ');
    return isUnknown
      ? `${path}[${index}]: must be one of ${among}`
      : faultOfScalar(item.kind, `${path}[${index}]`, line);
  });
  return faults.find(fault => fault !== '') ?? '';
}

function faultOfScalar(kind: SchemaField['kind'], path: string, text: string): string {
  if (kind === 'integer' && !Number.isInteger(Number(text))) return `${path}: must be an integer`;
  return kind === 'number' && !Number.isFinite(Number(text)) ? `${path}: must be a number` : '';
}

/** A fault that the service reported, at the part that its path names. */
export interface ReportedFault {
  readonly key: string;
  readonly text: string;
}

/** Returns the fault in a message of the service, or null if the message names no part by its path. */
export function faultIn(parts: readonly SchemaPart[], message: string): ReportedFault | null {
  const named = withMembers(parts).flatMap(({ key, path }) => {
    const at = message.indexOf(`: ${path}`);
    const isWhole = at >= 0 && ':.['.includes(message.charAt(at + path.length + 2) || ' ');
    return isWhole ? [{ key, text: message.slice(at + 2), chars: path.length }] : [];
  });
  const [nearest] = named.toSorted((one, other) => other.chars - one.chars);
  return nearest === undefined ? null : { key: nearest.key, text: nearest.text };
}

function withMembers(parts: readonly SchemaPart[]): readonly SchemaPart[] {
  return parts.flatMap(part => (part.kind === 'group' ? [part, ...withMembers(part.members)] : [part]));
}

function parsed(body: string): JsonObject {
  const value = parsedJson(body);
  return isObject(value) ? value : {};
}

/** Returns the value of a JSON text; undefined: the text is not JSON. */
function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isScalar(value: unknown): value is Scalar {
  return value === null || ['string', 'number', 'boolean'].includes(typeof value);
}

/** A version of a function, as the registry sends it. */
export type VersionRecord = Readonly<Record<string, unknown>>;

/** A setting that differs between two versions. */
export interface Change {
  /** Name of the field, with the names of its members: `environment.MODE`. */
  readonly name: string;
  /** Text of the first version; `''`: not set. */
  readonly before: string;
  readonly after: string;
}

interface Setting {
  /** Name of the field in a record. */
  readonly name: string;
  /** Name of the field in a request, if that is another. */
  readonly sentAs?: string;
  /** Value by which an update removes the field. */
  readonly none?: unknown;
}

/** Scaling of a version without `autoScaleConfig`, as the service applies it. */
const SCALING = { slaQuota: 0, scaleDownTime: 60_000, burstScaleNum: 1000 };

/** Fields of a record that an update can change. */
const FIELDS: readonly Setting[] = [
  { name: 'description' },
  { name: 'handler' },
  { name: 'httpProfile', none: '' },
  { name: 'storageType' },
  { name: 'codePath' },
  { name: 's3CodePath', none: {} },
  { name: 'dependencies', none: 'none' },
  { name: 'extendedHandler' },
  { name: 'extendedTimeout' },
  { name: 'layers', none: [] },
  { name: 'cpu' },
  { name: 'memory' },
  { name: 'timeout' },
  { name: 'environment', none: {} },
  { name: 'sandboxType' },
  { name: 'rootfs', none: {} },
  { name: 'minInstance' },
  { name: 'maxInstance' },
  { name: 'concurrentNum' },
  { name: 'customResources', none: {} },
  { name: 'tag', sentAs: 'tags', none: {} },
  { name: 'device', none: {} },
  { name: 'poolId' },
  { name: 'idleTime' },
  { name: 'autoScaleConfig', none: SCALING },
  { name: 'schedulePolicies', none: [] },
  { name: 'enableSessionCtx' },
  { name: 'enableAgentSession' },
  { name: 'isFuncPublic' },
  { name: 'expose', none: { port: 0 } },
  { name: 'inputSchema', none: {} },
  { name: 'validateInput', none: false },
];

/** Fields that are compared as a whole, because their members have no meaning alone. */
const WHOLE = new Set(['inputSchema', 'device']);

/** Returns the settings that differ between two versions. A secret is compared by its name. */
export function changesBetween(before: VersionRecord, after: VersionRecord): readonly Change[] {
  const textsIn = (record: VersionRecord, name: string) =>
    textsOf(name, record[name] ?? (name === 'autoScaleConfig' ? SCALING : undefined));
  return FIELDS.flatMap(({ name }) => {
    const [old, next] = [textsIn(before, name), textsIn(after, name)];
    return [...new Set([...old.keys(), ...next.keys()])].flatMap(key => {
      const change = { name: key, before: old.get(key) ?? '', after: next.get(key) ?? '' };
      return change.before === change.after ? [] : [change];
    });
  });
}

/** Returns the fields of an update that gives `latest` the settings and the code of `version`. */
export function rollbackTo(version: VersionRecord, latest: VersionRecord): VersionRecord {
  const changed = new Set(changesBetween(latest, version).map(({ name }) => name.split('.', 1)[0]));
  return Object.fromEntries(
    FIELDS.filter(({ name }) => changed.has(name)).map(({ name, sentAs, none }) => [
      sentAs ?? name,
      version[name] ?? none,
    ]),
  );
}

/** Returns the text of a value, or of each member of an object, by name. Empty values have no text. */
function textsOf(name: string, value: unknown): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  if (isObject(value) && typeof value.secret !== 'string' && !WHOLE.has(name)) {
    for (const [key, member] of Object.entries(value)) {
      for (const [path, text] of textsOf(`${name}.${key}`, member)) texts.set(path, text);
    }
    return texts;
  }
  const text = textOf(value);
  if (text !== '') texts.set(name, text);
  return texts;
}

function textOf(value: unknown): string {
  if (value === undefined || value === null || value === false) return '';
  if (isObject(value)) {
    if (typeof value.secret === 'string') return `secret ${value.secret}`;
    return Object.keys(value).length === 0 ? '' : JSON.stringify(value, null, 2);
  }
  if (Array.isArray(value)) return value.length === 0 ? '' : JSON.stringify(value);
  return String(value);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

import { variables } from './environment.ts';
import { invalidRequest, notFound, type ServiceError } from './error.ts';
import { failAtFirst, type JsonObject } from './json.ts';
import { anyObject, boolean, integer, type Kind, list, oneOf, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { maybe, object, optional, required, type ValueOf } from './shape.ts';
import { DEFAULT_TAG } from './template.ts';

const MAX_STEPS = 1000;
const MAX_TAGS = 100;
const NAME = /^[a-z0-9][a-z0-9._-]{0,127}$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;

/** A name of a template, and the tag that selects a build. */
export interface TemplateName {
  readonly name: string;
  readonly tag: string;
}

/** Splits `name:tag`. Without a tag it is the default one. Names are in lower case. */
export function parseTemplateName(sent: string): TemplateName {
  const colon = sent.lastIndexOf(':');
  const hasTag = colon > sent.lastIndexOf('/');
  const name = (hasTag ? sent.slice(0, colon) : sent).toLowerCase();
  return { name: name.slice(name.lastIndexOf('/') + 1), tag: hasTag ? sent.slice(colon + 1) : DEFAULT_TAG };
}

/** Fails with `invalid_request` unless the name and tags can be those of a build. */
export function checkTemplateName({ name }: Pick<TemplateName, 'name'>, tags: readonly string[]): void {
  if (!NAME.test(name)) {
    const got = JSON.stringify(name.slice(0, 80));
    throw invalidRequest(
      `invalid template name ${got}: it must have 1 to 128 lower-case letters, digits, ".", "_" and "-"`,
    );
  }
  const wrong = tags.find(tag => !TAG.test(tag));
  if (wrong === undefined) return;
  const got = JSON.stringify(wrong.slice(0, 80));
  throw invalidRequest(`invalid tag ${got}: it must have 1 to 128 letters, digits, ".", "_" and "-"`);
}

const BEGIN_FIELDS = {
  name: optional(text(), ''),
  alias: optional(text(), ''),
  tags: optional(list(text(), MAX_TAGS), []),
  cpuCount: maybe(integer({ min: 1, max: LIMITS.cpuMillis.max / 1000 })),
  memoryMB: maybe(integer({ min: LIMITS.memoryMb.min, max: LIMITS.memoryMb.max })),
};
const BEGIN = object<ValueOf<typeof BEGIN_FIELDS>>(BEGIN_FIELDS, { isFree: true });

/** Request for a new build of a template. */
export interface TemplateBegin {
  readonly name: string;
  readonly tags: readonly string[];
  readonly cpuMillis: number | null;
  readonly memoryMb: number | null;
}

/** Reads the body of `POST /v3/templates`. Fails with `invalid_request`. */
export function readTemplateBegin(body: JsonObject): TemplateBegin {
  const { name: sent, alias, tags, cpuCount, memoryMB } = readFields(BEGIN, body);
  const { name, tag } = parseTemplateName(sent === '' ? alias : sent);
  const isPlain = !(sent === '' ? alias : sent).includes(':');
  const all = isPlain && tags.length > 0 ? tags : [tag, ...tags];
  checkTemplateName({ name }, all);
  return {
    name,
    tags: [...new Set(all)],
    cpuMillis: cpuCount === undefined ? null : cpuCount * 1000,
    memoryMb: memoryMB ?? null,
  };
}

const STEP_FIELDS = {
  type: required(oneOf(['COPY', 'RUN', 'WORKDIR', 'USER', 'ENV'])),
  args: optional(list(text({ raw: true })), []),
  filesHash: optional(text(), ''),
  force: optional(boolean, false),
};
const step = object<ValueOf<typeof STEP_FIELDS>>(STEP_FIELDS, { isFree: true });

/** An instruction of a build. */
export type TemplateStep = ValueOf<typeof STEP_FIELDS>;

const START_FIELDS = {
  fromImage: optional(text(), ''),
  fromTemplate: optional(text(), ''),
  fromImageRegistry: maybe(anyObject),
  steps: optional(list(step, MAX_STEPS), []),
  startCmd: optional(text({ raw: true }), ''),
  readyCmd: optional(text({ raw: true }), ''),
  force: optional(boolean, false),
};
const START = object<ValueOf<typeof START_FIELDS>>(START_FIELDS, { isFree: true });

/** Request to start a build. */
export type TemplateStart = ValueOf<typeof START_FIELDS>;

const ARGS: Readonly<Record<TemplateStep['type'], number>> = { COPY: 2, RUN: 1, WORKDIR: 1, USER: 1, ENV: 2 };
const variable = variables(text({ raw: true }));

/** Reads the body of a start of a build. Fails with `invalid_request`. */
export function readTemplateStart(body: JsonObject): TemplateStart {
  const start = readFields(START, body);
  for (const [index, { type, args, filesHash }] of start.steps.entries()) {
    const least = ARGS[type];
    if (args.length < least) throw wrongStep(index, `${type} has ${args.length} arguments, expected ${least}`);
    if (type === 'COPY' && !isFilesHash(filesHash)) throw wrongStep(index, 'COPY has no filesHash');
    if (type !== 'ENV') continue;
    if (args.length % 2 !== 0) throw wrongStep(index, 'ENV has a name without a value');
    variable.read(Object.fromEntries(pairsOf(args)), `steps[${index}].args`, failAtFirst);
  }
  return start;
}

/** Returns the names and values of the arguments of an ENV. */
export function pairsOf(args: readonly string[]): readonly (readonly [name: string, value: string])[] {
  return args.flatMap((name, at) => (at % 2 === 0 ? [[name, args[at + 1] ?? ''] as const] : []));
}

/** Returns true for a hash of uploaded files. */
export function isFilesHash(sent: string): boolean {
  return /^[0-9a-f]{64}$/.test(sent);
}

const tagList = required(list(text({ required: true }), MAX_TAGS));
const ASSIGN = object({ target: required(text({ required: true })), tags: tagList }, { isFree: true });
const DROP = object({ name: required(text({ required: true })), tags: tagList }, { isFree: true });

/** Reads the body of an assignment of tags. Fails with `invalid_request`. */
export function readTagAssign(body: JsonObject): { readonly target: TemplateName; readonly tags: readonly string[] } {
  const { target, tags } = readFields(ASSIGN, body);
  const parsed = parseTemplateName(target);
  checkTemplateName(parsed, tags);
  return { target: parsed, tags };
}

/** Reads the body of a removal of tags. Fails with `invalid_request`. */
export function readTagDrop(body: JsonObject): { readonly name: string; readonly tags: readonly string[] } {
  const { name, tags } = readFields(DROP, body);
  return { name: parseTemplateName(name).name, tags };
}

const SNAPSHOT = object({ name: optional(text(), ''), memory: optional(boolean, true) }, { isFree: true });

/** Reads the body of a snapshot. `name` `''`: it gets none. Fails with `invalid_request`. */
export function readSnapshot(body: JsonObject): { readonly name: string } {
  const { name: sent, memory } = readFields(SNAPSHOT, body);
  if (memory) {
    throw invalidRequest(
      'invalid request body: snapshots of the memory are not supported by this service; memory: false ' +
        '(mode="filesystem" of the SDKs) keeps the files',
    );
  }
  if (sent === '') return { name: '' };
  const { name, tag } = parseTemplateName(sent);
  if (tag !== DEFAULT_TAG) throw invalidRequest('invalid request body: name of a snapshot must have no tag');
  checkTemplateName({ name }, []);
  return { name };
}

const MAX_SNAPSHOTS = 100;

/** Reads the query of a list of snapshots. `''`: any. Fails with `invalid_request`. */
export function readSnapshotList(query: URLSearchParams) {
  const limit = query.get('limit') ?? String(MAX_SNAPSHOTS);
  if (!/^\d{1,3}$/.test(limit) || Number(limit) < 1 || Number(limit) > MAX_SNAPSHOTS) {
    throw invalidRequest(`invalid query: limit must be a number from 1 to ${MAX_SNAPSHOTS}`);
  }
  const name = query.get('name') ?? '';
  return {
    sandboxId: query.get('sandboxID') ?? '',
    name: name === '' ? '' : parseTemplateName(name).name,
    nextToken: query.get('nextToken') ?? '',
    limit: Number(limit),
  };
}

export const templateMissing = (name: string): ServiceError => notFound(`template not found: ${name.slice(0, 80)}`);

function wrongStep(index: number, why: string): ServiceError {
  return invalidRequest(`invalid request body: steps[${index}]: ${why}`);
}

function readFields<T>(kind: Kind<T>, body: JsonObject): T {
  return kind.read(body, '', failAtFirst) as T;
}

import { expect, test } from 'vitest';
import { ABSENT, bodyOf, faultIn, faultOf, fieldsOf, type SchemaPart, SENT, textsOf } from './schema-fields.ts';

const SCHEMA = {
  type: 'object',
  properties: {
    sku: { type: 'string', description: 'The article.' },
    count: { type: 'integer', default: 1 },
    factor: { type: ['number', 'null'] },
    isGift: { type: 'boolean' },
    size: { $ref: '#/$defs/Size' },
    note: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null },
  },
  required: ['sku', 'size'],
  $defs: { Size: { enum: ['s', 'l'] } },
};
const fields = fieldsOf(SCHEMA) ?? [];

/** Returns the parts of a schema with these properties, by their paths. */
function partsOf(properties: object, rest: object = {}): Map<string, SchemaPart> {
  const parts = fieldsOf({ properties, ...rest }) ?? [];
  const all = (of: readonly SchemaPart[]): readonly SchemaPart[] =>
    of.flatMap(part => (part.kind === 'group' ? [part, ...all(part.members)] : [part]));
  return new Map(all(parts).map(part => [part.path, part]));
}

/** Returns texts by key for texts by path; other parts keep their first texts. */
function filled(parts: readonly SchemaPart[], texts: Readonly<Record<string, string>>, body = '{}') {
  const keys = (of: readonly SchemaPart[]): readonly (readonly [string, string])[] =>
    of.flatMap(part => [[part.path, part.key] as const, ...(part.kind === 'group' ? keys(part.members) : [])]);
  const keyOf = new Map(keys(parts));
  const given = Object.entries(texts).map(([path, text]) => [keyOf.get(path) ?? path, text]);
  return { ...textsOf(parts, body), ...Object.fromEntries(given) };
}

test('simple members of a schema become fields with their first texts', () => {
  expect(fields.map(({ path, kind, isRequired, hint, first }) => [path, kind, isRequired, hint, first])).toEqual([
    ['event.sku', 'string', true, 'string: The article.', ''],
    ['event.count', 'integer', false, 'integer, optional', '1'],
    ['event.factor', 'number', false, 'number, optional', ''],
    ['event.isGift', 'choice', false, 'boolean, optional', ABSENT],
    ['event.size', 'choice', true, 'one of these', 's'],
    ['event.note', 'string', false, 'string, optional', ''],
  ]);
});

test('a schema without an object or with JSON members only has no form', () => {
  const without = [
    undefined,
    {},
    { type: 'string' },
    { type: 'object', properties: {} },
    { $ref: '#/$defs/Node', $defs: {} },
    { properties: { a: {}, b: { properties: { c: { type: 'array' } } } } },
    { properties: Object.fromEntries(Array.from({ length: 201 }, (_, at) => [`p${at}`, { type: 'string' }])) },
  ];
  for (const schema of without) expect(fieldsOf(schema), JSON.stringify(schema)).toBeNull();
});

test('a member of another kind is a field for JSON, and a forbidden member has no field', () => {
  const others = [
    true,
    {},
    { type: 'array' },
    { type: 'array', items: { type: 'object' } },
    { type: 'object' },
    { type: 'object', properties: {} },
    { type: 'null' },
    { type: ['string', 'integer'] },
    { enum: [] },
    { enum: [{ a: 1 }] },
    { $ref: '#/$defs/absent' },
    { anyOf: [{ type: 'string' }, { type: 'integer' }] },
  ];
  for (const member of others) {
    const parts = fieldsOf({ properties: { a: { type: 'string' }, b: member } }) ?? [];
    expect(parts[1], JSON.stringify(member)).toMatchObject({ kind: 'json', hint: 'JSON, optional', first: '' });
    expect(JSON.parse(bodyOf(parts, filled(parts, { 'event.b': '{"c": [null]}' }), '{}'))).toEqual({
      b: { c: [null] },
    });
    expect(JSON.parse(bodyOf(parts, filled(parts, { 'event.b': 'null' }), '{}'))).toEqual({ b: null });
    expect(JSON.parse(bodyOf(parts, filled(parts, { 'event.b': '{' }), '{}'))).toEqual({ b: '{' });
    expect(textsOf(parts, '{"b": "a"}')).toEqual(filled(parts, { 'event.b': '"a"' }));
  }
  expect([...partsOf({ a: { type: 'string' }, b: false }).keys()]).toEqual(['event.a']);
});

test('texts become the members of the body, and back', () => {
  const texts = filled(fields, {
    ...{ 'event.sku': 'a', 'event.count': '2', 'event.factor': '0.5' },
    ...{ 'event.isGift': 'true', 'event.size': 'l', 'event.note': '' },
  });
  const body = bodyOf(fields, texts, '{"more": [1], "note": "old"}');
  expect(JSON.parse(body)).toEqual({ more: [1], sku: 'a', count: 2, factor: 0.5, isGift: true, size: 'l' });
  expect(textsOf(fields, body)).toEqual(texts);
  const changed = { ...texts, ...filled(fields, { 'event.count': 'two' }, body), [fields[3]?.key ?? '']: ABSENT };
  expect(JSON.parse(bodyOf(fields, changed, 'nothing'))).toEqual({ sku: 'a', count: 'two', factor: 0.5, size: 'l' });
  expect(textsOf(fields, '[]')).toEqual(filled(fields, { 'event.count': '1', 'event.size': 's' }));
  expect(textsOf(fields, '{"factor": null}')).toEqual(textsOf(fields, '{}'));
});

const ADDRESS = {
  type: 'object',
  properties: {
    street: { type: 'string' },
    zip: { type: 'integer', default: 10115 },
    geo: { anyOf: [{ $ref: '#/$defs/Geo' }, { type: 'null' }], default: null, description: 'Where it is.' },
  },
  required: ['street'],
};
const GEO = { properties: { lat: { type: 'number' }, lon: { type: 'number' } }, required: ['lat', 'lon'] };
const NESTED = {
  properties: { to: { $ref: '#/$defs/Address' }, from: { $ref: '#/$defs/Address' }, id: { type: 'string' } },
  required: ['to'],
  $defs: { Address: ADDRESS, Geo: GEO },
};
const nested = fieldsOf(NESTED) ?? [];

test('an object with properties is a group, and an optional group is not sent at first', () => {
  const { properties, ...rest } = NESTED;
  const found = [...partsOf(properties, rest).values()];
  expect(found.map(({ path, kind, isRequired, hint, first }) => [path, kind, isRequired, hint, first])).toEqual([
    ['event.to', 'group', true, '', SENT],
    ['event.to.street', 'string', true, 'string', ''],
    ['event.to.zip', 'integer', false, 'integer, optional', '10115'],
    ['event.to.geo', 'group', false, 'optional: Where it is.', ABSENT],
    ['event.to.geo.lat', 'number', true, 'number', ''],
    ['event.to.geo.lon', 'number', true, 'number', ''],
    ['event.from', 'group', false, 'optional', ABSENT],
    ['event.from.street', 'string', true, 'string', ''],
    ['event.from.zip', 'integer', false, 'integer, optional', '10115'],
    ['event.from.geo', 'group', false, 'optional: Where it is.', ABSENT],
    ['event.from.geo.lat', 'number', true, 'number', ''],
    ['event.from.geo.lon', 'number', true, 'number', ''],
    ['event.id', 'string', false, 'string, optional', ''],
  ]);
  expect(new Set(found.map(({ key }) => key)).size).toBe(found.length);
});

test('the body has required groups and those that are sent, and keeps members without a field', () => {
  expect(JSON.parse(bodyOf(nested, textsOf(nested, '{}'), '{}'))).toEqual({ to: { zip: 10115 } });
  const texts = filled(nested, {
    ...{ 'event.to.street': 'A 1', 'event.to.zip': '', 'event.from': SENT, 'event.from.geo': SENT },
    ...{ 'event.from.geo.lat': '52.5', 'event.to.geo.lat': '1' },
  });
  const body = bodyOf(nested, texts, '{"other": 1, "to": {"floor": 2, "street": "old"}, "from": "nowhere"}');
  expect(JSON.parse(body)).toEqual({
    ...{ other: 1, to: { floor: 2, street: 'A 1' }, from: { zip: 10115, geo: { lat: 52.5 } } },
  });
  const again = textsOf(nested, '{"to": {"geo": {"lat": 1, "lon": 2}}, "from": null}');
  expect(again).toEqual(
    filled(nested, { 'event.to.geo': SENT, 'event.to.geo.lat': '1', 'event.to.geo.lon': '2', 'event.from': ABSENT }),
  );
});

test('the default of an object fills its group, until the body has the object', () => {
  const at = { ...GEO, default: { lat: 1, lon: 2 } };
  const parts = fieldsOf({ properties: { at } }) ?? [];
  expect(JSON.parse(bodyOf(parts, textsOf(parts, '{}'), '{}'))).toEqual({ at: { lat: 1, lon: 2 } });
  expect(textsOf(parts, '{"at": {"lat": 3}}')).toEqual(filled(parts, { 'event.at.lat': '3', 'event.at.lon': '' }));
});

test('groups end at the fourth level and at a schema that contains itself', () => {
  const leaf = { type: 'string' };
  const deep = (levels: number): object => (levels === 0 ? leaf : { properties: { leaf, in: deep(levels - 1) } });
  const kinds = [...partsOf({ leaf, in: deep(6) })].filter(([path]) => path.endsWith('.in'));
  expect(kinds.map(([path, { kind }]) => [path, kind])).toEqual([
    ['event.in', 'group'],
    ['event.in.in', 'group'],
    ['event.in.in.in', 'group'],
    ['event.in.in.in.in', 'group'],
    ['event.in.in.in.in.in', 'json'],
  ]);
  const node = { properties: { name: leaf, next: { $ref: '#/$defs/Node' } } };
  expect(
    [...partsOf({ tree: { $ref: '#/$defs/Node' } }, { $defs: { Node: node } })].map(([, { kind }]) => kind),
  ).toEqual([...['group', 'string', 'json']]);
});

test('an array of scalars is a list with one item per line', () => {
  const properties = {
    tags: { type: 'array', items: { type: 'string' }, default: ['x', 'y'] },
    counts: { type: 'array', items: { type: 'integer' } },
    sizes: { type: 'array', items: { enum: ['s', 'l', null] } },
  };
  const parts = fieldsOf({ properties, required: ['counts'] }) ?? [];
  expect(parts.map(({ kind, hint, first }) => [kind, hint, first])).toEqual([
    ['list', 'one per line: string, optional', 'x\ny'],
    ['list', 'one per line: integer', ''],
    ['list', 'one per line of s, l, null, optional', ''],
  ]);
  const bodyWith = (texts: Readonly<Record<string, string>>) => JSON.parse(bodyOf(parts, filled(parts, texts), '{}'));
  expect(bodyWith({ 'event.tags': '' })).toEqual({ counts: [] });
  expect(bodyWith({ 'event.tags': 'a b\n\n1', 'event.counts': '1\ntwo', 'event.sizes': 'l\nnull\nxl' })).toEqual({
    ...{ tags: ['a b', '1'], counts: [1, 'two'], sizes: ['l', null, 'xl'] },
  });
  for (const tags of [[], [''], ['a\nb'], ['[1]'], [1, 'a'], ['a', 'b']]) {
    const texts = textsOf(parts, JSON.stringify({ tags }));
    expect(JSON.parse(bodyOf(parts, texts, '{}')).tags, JSON.stringify(tags)).toEqual(tags);
  }
});

test('a text that does not fit its field has a fault with the path', () => {
  const list = (items: object) => ({ type: 'array', items });
  const parts = partsOf({
    in: { properties: { count: { type: 'integer' }, factor: { type: 'number' }, any: {}, note: { type: 'string' } } },
    ...{ counts: list({ type: 'integer' }), sizes: list({ enum: ['s', 'l'] }) },
  });
  const faultAt = (path: string, text: string) => {
    const part = parts.get(path);
    return part === undefined || part.kind === 'group' ? 'no field' : faultOf(part, text);
  };
  expect(faultAt('event.in.count', '1.5')).toBe('event.in.count: must be an integer');
  expect(faultAt('event.in.factor', 'half')).toBe('event.in.factor: must be a number');
  expect(faultAt('event.in.any', '{')).toBe('event.in.any: must be JSON');
  expect(faultAt('event.counts', '1\nb')).toBe('event.counts[1]: must be an integer');
  expect(faultAt('event.sizes', 's\nm')).toBe('event.sizes[1]: must be one of s, l');
  const fine = { count: '-1', factor: '1e3', any: 'null', note: '{' };
  for (const [name, text] of Object.entries(fine)) expect(faultAt(`event.in.${name}`, text)).toBe('');
  for (const path of parts.keys()) if (path !== 'event.in') expect(faultAt(path, '')).toBe('');
});

test('a fault of the service belongs to the part with the longest path that its message names', () => {
  const found = (message: string) => {
    const fault = faultIn(nested, `the event does not fit the inputSchema of the function: ${message}`);
    return fault && [partAt(fault.key), fault.text];
  };
  const partAt = (key: string) => Object.entries(byKey).find(([each]) => each === key)?.[1];
  const { properties, ...rest } = NESTED;
  const byKey = Object.fromEntries([...partsOf(properties, rest).values()].map(({ key, path }) => [key, path]));
  expect(found('event.to.street: is required')).toEqual(['event.to.street', 'event.to.street: is required']);
  expect(found('event.to.geo.lat: must be a number, got "a"')?.[0]).toBe('event.to.geo.lat');
  expect(found('event.to.other: is not allowed')?.[0]).toBe('event.to');
  expect(found('event.idle: is not allowed')).toBeNull();
  expect(found('event: must be an object, got an array')).toBeNull();
});

import { expect, test } from 'vitest';
import { readRegister } from '../core/function.ts';
import { fromStored, toRecord, toStored } from './function-record.ts';

function version(expose: object | null, more: object = {}) {
  const read = readRegister({ name: '0@demo@hello', runtime: 'http', cpu: 500, memory: 512, expose, ...more });
  if (!read.ok) throw new Error('the sample is wrong');
  return {
    ...{
      tenant: 'default',
      business: 'yrk',
      version: '$latest',
      urn: 'sn:cn:yrk:default:function:0@demo@hello:$latest',
    },
    ...{ revisionId: 'r', versionDesc: '', createTime: '', publishTime: '', updateTime: '' },
    spec: read.value,
  };
}

test('a record contains expose only when the function exposes a port', () => {
  const fields = (expose: object | null) => Object.keys(toRecord(version(expose)));
  expect(fields({ port: 0 })).toEqual(fields(null));
  expect(fields(null)).not.toContain('expose');
  expect(toRecord(version({ port: 80 }))).toMatchObject({ expose: { port: 80, access: 'token' } });
});

test('a stored version keeps its expose setting, null or set, when read back', () => {
  for (const expose of [null, { port: 80, access: 'public' }]) {
    expect(fromStored(toStored(version(expose))).spec.expose).toEqual(expose);
  }
});

test('a record has inputSchema and validateInput only when the function has them', () => {
  const plain = version(null);
  expect(toStored(version(null, { inputSchema: {} })).record).toBe(toStored(plain).record);
  expect(Object.keys(toRecord(plain))).not.toEqual(expect.arrayContaining(['inputSchema']));
  const inputSchema = { type: 'object', properties: { a: { type: 'integer' } } };
  const stored = version(null, { inputSchema, validateInput: true });
  expect(toRecord(stored)).toMatchObject({ inputSchema, validateInput: true });
  expect(fromStored(toStored(stored)).spec).toMatchObject({ inputSchema, validateInput: true });
  expect(fromStored(toStored(plain)).spec).toMatchObject({ inputSchema: null, validateInput: false });
});

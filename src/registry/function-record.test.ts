import { expect, test } from 'vitest';
import { readRegister } from '../core/function.ts';
import { fromStored, toRecord, toStored } from './function-record.ts';

function version(expose: object | null) {
  const read = readRegister({ name: '0@demo@hello', runtime: 'http', cpu: 500, memory: 512, expose });
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

import { describe, expect, it } from 'vitest';
import { changesBetween, rollbackTo } from './version-changes.ts';

const BASE = {
  ...{ name: '0@svc@f', revisionId: '1', versionNumber: '$latest', handler: 'main.one', memory: 128 },
  ...{ environment: { MODE: 'a', KEY: { secret: 'one' } }, tag: null, rootfs: null, description: '' },
};

describe('changesBetween', () => {
  it('returns the settings that differ, each variable by its own name and a secret by its name', () => {
    const after = { ...BASE, memory: 256, environment: { MODE: 'a', KEY: { secret: 'two' }, NEW: 'x' } };
    expect(changesBetween(BASE, after)).toEqual([
      { name: 'memory', before: '128', after: '256' },
      { name: 'environment.KEY', before: 'secret one', after: 'secret two' },
      { name: 'environment.NEW', before: '', after: 'x' },
    ]);
  });

  it('returns nothing for other names, revisions and times, and for empty values of different kinds', () => {
    const after = { ...BASE, revisionId: '2', versionNumber: 'v1', versionDesc: 'x', Published: 'now', tag: {} };
    expect(changesBetween(BASE, { ...after, layers: [], inputSchema: {}, rootfs: { user: '', ports: [] } })).toEqual(
      [],
    );
  });

  it('compares a schema as a whole', () => {
    const [change] = changesBetween(BASE, { ...BASE, inputSchema: { type: 'object' } });
    expect(change).toEqual({ name: 'inputSchema', before: '', after: '{\n  "type": "object"\n}' });
  });
});

describe('rollbackTo', () => {
  it('returns the whole fields that differ, under the names of the request', () => {
    const latest = { ...BASE, memory: 256, environment: {}, tag: { of: 'us' } };
    const version = { ...BASE, tag: { of: 'them' } };
    expect(rollbackTo(version, latest)).toEqual({ memory: 128, environment: BASE.environment, tags: { of: 'them' } });
  });

  it('returns the value that removes a field when only the latest revision has the field', () => {
    const latest = { ...BASE, expose: { port: 80 }, inputSchema: { type: 'object' }, validateInput: true };
    const more = { dependencies: 'auto', layers: ['code://a'], tag: { of: 'us' }, httpProfile: 'azure' };
    expect(rollbackTo(BASE, { ...latest, ...more })).toEqual({
      ...{ expose: { port: 0 }, inputSchema: {}, validateInput: false },
      ...{ dependencies: 'none', layers: [], tags: {}, httpProfile: '' },
    });
  });
});

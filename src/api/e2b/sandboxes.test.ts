import { createHash, randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Instance, InstanceSpec } from '../../core/instance.ts';
import { agentIdOf, E2bSandboxes, sandboxIdOf, signatureOf } from './sandboxes.ts';

const KEY = Buffer.from('a key of this test');

function sourceOf(...instances: readonly Instance[]) {
  let reads = 0;
  const byId = new Map(instances.map(each => [each.id, each]));
  return {
    add: (instance: Instance) => byId.set(instance.id, instance),
    remove: (instance: Instance) => byId.delete(instance.id),
    reads: () => reads,
    find: async (id: string) => byId.get(id) ?? null,
    sandboxIds: async () => {
      reads += 1;
      return [...byId.keys()];
    },
  };
}

function sandbox(spec: Partial<InstanceSpec> = { template: 'base' }): Instance {
  return { id: randomUUID(), spec: { tenant: 'one', ...spec } } as Instance;
}

const signed = (path: string, token: string, expiration = '', operation: 'read' | 'write' = 'read') => {
  const signature = signatureOf({ path, operation, username: '', expiration }, token);
  const query = new URLSearchParams({ path, signature });
  if (expiration !== '') query.set('signature_expiration', expiration);
  return query;
};

describe('E2bSandboxes', () => {
  it('finds a sandbox by its id without dashes, for its tenant only', async () => {
    const one = sandbox();
    const sandboxes = new E2bSandboxes(sourceOf(one), KEY);
    const id = sandboxIdOf(one.id);
    expect(id).toMatch(/^[0-9a-f]{32}$/);
    expect(agentIdOf(id)).toBe(one.id);
    expect((await sandboxes.byId('one', id))?.instance).toBe(one);
    expect((await sandboxes.byId(null, id))?.id).toBe(id);
    expect(await sandboxes.byId('two', id)).toBeNull();
    expect(await sandboxes.byId('one', one.id)).toBeNull();
  });

  it('does not find an agent without a template', async () => {
    const agent = sandbox({});
    expect(await new E2bSandboxes(sourceOf(agent), KEY).byId(null, sandboxIdOf(agent.id))).toBeNull();
  });

  it('finds a sandbox by its token, and refuses changed tokens and those of another key', async () => {
    const one = sandbox();
    const source = sourceOf(one);
    const sandboxes = new E2bSandboxes(source, KEY);
    const token = sandboxes.tokenOf(one);
    expect((await sandboxes.byToken(token))?.instance).toBe(one);
    expect(new E2bSandboxes(source, KEY).tokenOf(one)).toBe(token);
    const changed = token.slice(0, -1) + (token.endsWith('0') ? '1' : '0');
    expect(await sandboxes.byToken(changed)).toBeNull();
    expect(await sandboxes.byToken(new E2bSandboxes(source, Buffer.from('other')).tokenOf(one))).toBeNull();
    expect(await sandboxes.byToken('')).toBeNull();
    source.remove(one);
    expect(await sandboxes.byToken(token)).toBeNull();
    expect(sandboxes.idOfToken(token)).toBe(sandboxIdOf(one.id));
  });

  it('signs as the protocol says', () => {
    const hash = (text: string) => createHash('sha256').update(text).digest('base64').replace('=', '');
    const url = { path: '~/ä b', operation: 'write', username: 'root', expiration: '' } as const;
    expect(signatureOf(url, 'secret')).toBe(`v1_${hash('~/ä b:write:root:secret')}`);
    expect(signatureOf({ ...url, expiration: '17' }, 'secret')).toBe(`v1_${hash('~/ä b:write:root:secret:17')}`);
  });

  it('finds the signer of a file URL, also of a sandbox that is new', async () => {
    const [one, two] = [sandbox(), sandbox()];
    const source = sourceOf(one);
    const sandboxes = new E2bSandboxes(source, KEY);
    const query = signed('a+b', sandboxes.tokenOf(one), '1');
    expect((await sandboxes.bySignature(query, 'read'))?.instance).toBe(one);
    expect(await sandboxes.bySignature(query, 'write')).toBeNull();
    source.add(two);
    const later = signed('x', sandboxes.tokenOf(two));
    expect((await sandboxes.bySignature(later, 'read'))?.instance).toBe(two);
    const before = source.reads();
    expect((await sandboxes.bySignature(later, 'read'))?.instance).toBe(two);
    expect(source.reads()).toBe(before);
    source.remove(two);
    expect(await sandboxes.bySignature(later, 'read')).toBeNull();
  });

  it('accepts a signature whose plus signs were not escaped', async () => {
    const one = sandbox();
    const sandboxes = new E2bSandboxes(sourceOf(one), KEY);
    const token = sandboxes.tokenOf(one);
    const path = [...Array(500).keys()].map(String).find(each => signed(each, token).get('signature')?.includes('+'));
    const { signature } = Object.fromEntries(signed(path ?? '', token));
    const query = new URLSearchParams(`path=${path}&signature=${signature}`);
    expect(query.get('signature')).toContain(' ');
    expect((await sandboxes.bySignature(query, 'read'))?.instance).toBe(one);
  });

  it('finds none without a signature, and reads nothing', async () => {
    const source = sourceOf(sandbox());
    expect(await new E2bSandboxes(source, KEY).bySignature(new URLSearchParams('path=a'), 'read')).toBeNull();
    expect(source.reads()).toBe(0);
  });

  it('shares one read among file URLs that arrive while ids are read', async () => {
    const source = sourceOf(sandbox());
    const sandboxes = new E2bSandboxes(source, KEY);
    const wrong = new URLSearchParams('path=a&signature=v1_x');
    await Promise.all([...Array(10).keys()].map(() => sandboxes.bySignature(wrong, 'read')));
    expect(source.reads()).toBe(2);
  });
});

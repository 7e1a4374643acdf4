import { expect, test } from 'vitest';
import { differences } from './step.ts';

const MASKED = { KEY: '***', OTHER: { secret: '***' }, EMPTY: '' };

test.each([
  ['the same', { A: 'x' }, { A: 'x' }, 'same'],
  ['another value', { A: 'x' }, { A: 'y' }, 'changes'],
  ['masked values', { KEY: 'x', OTHER: { secret: 's' }, EMPTY: '' }, MASKED, 'hidden'],
  ['another name beside masked values', { ...MASKED, MORE: 'x' }, MASKED, 'changes'],
  ['one variable less', { KEY: 'x', EMPTY: '' }, MASKED, 'changes'],
  ['a value where a masked one is empty', { KEY: 'x', OTHER: { secret: 's' }, EMPTY: 'x' }, MASKED, 'changes'],
  ['a secret in place of a masked text', { KEY: { secret: 's' } }, { KEY: '***' }, 'changes'],
  ['an empty value in place of a masked text', { KEY: '' }, { KEY: '***' }, 'changes'],
])('differences compares an environment with %s', (_, wanted, found, what) => {
  const of = (name: string) => ({ changes: what === 'changes' ? [name] : [], hidden: what === 'hidden' ? [name] : [] });
  expect(differences({ environment: wanted }, { environment: found })).toEqual(of('environment'));
  const job = (env_vars: object) => ({ job: { entrypoint: 'true', runtime_env: { env_vars } } });
  expect(differences(job(wanted), job(found))).toEqual(of('job'));
});

test('only environment values count as masked, and differences in other fields are reported', () => {
  expect(differences({ description: 'x', cpu: 1 }, { description: '***' })).toEqual({
    changes: ['description', 'cpu'],
    hidden: [],
  });
  const wanted = { job: { entrypoint: 'new', runtime_env: { env_vars: { KEY: 'x' } } } };
  const found = { job: { entrypoint: 'old', runtime_env: { env_vars: { KEY: '***' } } } };
  expect(differences(wanted, found)).toEqual({ changes: ['job'], hidden: [] });
});

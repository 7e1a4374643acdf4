import Fastify from 'fastify';
import { expect, test } from 'vitest';
import { checkQueries } from './query-text.ts';

async function ask(query: string, config: object = { docs: { querystring: {} } }) {
  const app = Fastify();
  checkQueries(app);
  app.get('/x', { config: config as never }, async request => request.query);
  await app.ready();
  const answer = await app.inject(`/x?${query}`);
  return { status: answer.statusCode, body: answer.json() };
}

test.each([
  ['a byte that is no UTF-8', 'path=/tmp/x%FF', 'path'],
  ['half of a surrogate pair', 'a=1&path=%ED%B3%BF', 'path'],
  ['a character that is cut', 'name=%C3', 'name'],
  ['an escape without two digits', 'name=100%', 'name'],
  ['an escape with other letters', 'name=%zz', 'name'],
  ['a repeated parameter, once wrong', 'env=A%3D1&env=A%3D%FF', 'env'],
  ['a name', '%FF=1', 'a name'],
])('%s in a query is rejected', async (_case, query, name) => {
  const { body } = await ask(query);
  expect(body.message).toBe(`invalid query: ${name} must be UTF-8, percent-encoded`);
});

test('a query may contain text in any script and repeated parameters', async () => {
  const query = 'path=%2Ft%C3%A9%20%F0%9F%98%80+%25FF&env=a&env=b&empty=&%E6%97%A5=1';
  const read = { path: '/té 😀 %FF', env: ['a', 'b'], empty: '', 日: '1' };
  expect(await ask(query)).toEqual({ status: 200, body: read });
});

test('a query that belongs to a sandbox is passed unchecked', async () => {
  const config = { docs: { querystring: {} }, hasForeignQuery: true };
  expect(await ask('path=%FF', config)).toMatchObject({ status: 200, body: { path: '%FF' } });
});

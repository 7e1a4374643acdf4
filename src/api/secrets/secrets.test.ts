import { expect, test } from 'vitest';
import { testFrontend } from '../../../test/http/frontend.ts';

const SECRETS = {
  put: async () => {
    throw new Error('nothing is to be written');
  },
  list: async () => [],
  remove: async () => undefined,
};

test.each([
  'hunter2',
  '{"value": hunter2}',
  '{"value": "hunter2}',
  '{"value": ["hunter2"]}',
  '["hunter2"]',
  '"hunter2"',
])('a secret value sent without JSON around it is neither answered nor logged: %j', async payload => {
  await using frontend = testFrontend({ secrets: SECRETS });
  const { status, text } = await frontend.send({ method: 'PUT', url: '/api/secrets/db', payload });
  expect(status).toBe(400);
  expect(frontend.lines).toMatchObject([{ text: 'request refused' }]);
  expect(text + JSON.stringify(frontend.lines)).not.toContain('hunter2');
});

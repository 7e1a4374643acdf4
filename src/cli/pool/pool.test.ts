import { expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

const MISSING = { code: 4120, message: 'pool does not exist or has been deleted. check input parameters' };

test.each([
  ['delete', ['pool', 'rm', 'nope', 'none'], ['pool nope: pool does not exist', 'pool none: pool does not exist']],
  ['update', ['pool', 'update', 'nope', '--size', '2'], ['pool nope: pool does not exist']],
])('pool %s names each pool that does not exist, and the command that lists them', async (_, args, sentences) => {
  await using service = await StubService.start((_, response) => json(response, 200, MISSING));
  const ran = await cli([...args, '--meta-address', service.address]);
  expect(ran).toMatchObject({ code: 1, out: '' });
  for (const sentence of sentences) expect(ran.err).toContain(sentence);
  expect(ran.err).toContain('"rookery pool list" shows those that exist.');
});

import http from 'node:http';
import { describe, expect, test } from 'vitest';
import { createBody, SPEC, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { internal, unavailable } from '../../core/error.ts';
import { hidingOwnPaths } from './masking.ts';

const hide = hidingOwnPaths(['/srv/rookery', '/opt/rookery+1/']);

describe('paths of the service in answers', () => {
  test.each([
    [
      'nothing answers at /srv/rookery/run/a.sock: connect ENOENT /srv/rookery/run/a.sock',
      'nothing answers at [a path of the service]: connect ENOENT [a path of the service]',
    ],
    ['"/srv/rookery"', '"[a path of the service]"'],
    ['(/opt/rookery+1/dist/main.js)', '([a path of the service])'],
    ['/srv/rookery-other/x and /srv/rook', '/srv/rookery-other/x and /srv/rook'],
    ['the code directory does not exist: /home/me/code', 'the code directory does not exist: /home/me/code'],
  ])('own paths are replaced in the text: %s', (text, expected) => expect(hide(text)).toBe(expected));

  test.each([[[]], [['']], [['/']]])('a text is unchanged with the directories %j', directories => {
    expect(hidingOwnPaths(directories)('/srv/rookery')).toBe('/srv/rookery');
  });

  const error = unavailable('nothing answers at /srv/rookery/run/a.sock: connect ENOENT');

  test.each(['/api/agent/1', '/readyz'])('an error of GET %s contains no path of the service', async url => {
    await using frontend = testFrontend({
      ownDirectories: ['/srv/rookery'],
      ready: () => ({ storage: 'SQLITE_FULL: /srv/rookery/rookery.db' }),
    });
    frontend.instances.get = () => Promise.reject(error);
    const { status, text } = await frontend.send({ url });
    expect(status).toBe(503);
    expect(text).not.toContain('/srv');
    expect(JSON.parse(text)).toMatchObject({ code: 503 });
  });

  test('an error keeps the own path that the caller has sent', async () => {
    await using frontend = testFrontend({ ownDirectories: ['/srv/rookery'] });
    const { body } = await frontend.send({
      method: 'POST',
      url: '/api/agent',
      payload: JSON.stringify(createBody({ workspace: '/srv/rookery/run' })),
    });
    expect(body).toEqual({ code: 400, message: 'unsafe workspace: /srv/rookery/run' });
  });

  test('paths of the service are hidden in answers of the fast path too, and the log has the path', async () => {
    await using frontend = testFrontend({ ownDirectories: ['/srv/rookery'] });
    const agent = frontend.instances.put(newInstance(SPEC));
    frontend.instances.invoke = () => Promise.reject(internal('it broke at /srv/rookery/run/a.sock'));
    const url = await frontend.listen();
    const text = await new Promise<string>((resolve, reject) => {
      const request = http.request(`${url}/api/agent/${agent.id}/invoke`, { method: 'POST' }, async response => {
        resolve(Buffer.concat(await response.toArray()).toString());
      });
      request.on('error', reject).end('{}');
    });
    expect(JSON.parse(text)).toMatchObject({
      code: 500,
      message: 'invoke failed: it broke at [a path of the service]',
    });
    expect(JSON.stringify(frontend.lines)).toContain('/srv/rookery/run/a.sock');
  });
});
